//! What of a definition everybody sees who looks at a session: its phases, not what they run.

use crate::cascade::{Cascade, Work};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    pub phases: Vec<PhaseOutline>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseOutline {
    pub name: String,
    pub kind: &'static str,
    pub description: Option<String>,
    pub needs: Vec<String>,
    pub tasks: i64,
}

impl Outline {
    pub fn of(cascade: &Cascade) -> Self {
        let phases = cascade.phases.iter().enumerate().map(|(place, phase)| {
            let needs = cascade.needs(place).into_iter().filter_map(|need| cascade.phases.get(need));
            PhaseOutline {
                name: phase.name.clone(),
                kind: phase.work.kind(),
                description: phase.description.clone(),
                needs: needs.map(|need| need.name.clone()).collect(),
                tasks: match &phase.work {
                    Work::Run(_) | Work::Agent(_) => 1,
                    Work::Tasks(tasks) => tasks.len() as i64,
                    Work::Await(_) | Work::Cascade(_) | Work::Set(_) => 0,
                },
            }
        });
        Self { phases: phases.collect() }
    }

    pub fn tasks(&self) -> i64 {
        self.phases.iter().map(|phase| phase.tasks).sum()
    }
}

impl Work {
    /// The key that stands in the file.
    pub fn kind(&self) -> &'static str {
        match self {
            Work::Run(_) => "run",
            Work::Agent(_) => "agent",
            Work::Tasks(_) => "tasks",
            Work::Await(_) => "await",
            Work::Cascade(_) => "cascade",
            Work::Set(_) => "set",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_outline_names_phases_what_they_need_and_how_many_tasks_they_have() {
        let cascade: Cascade = serde_json::from_value(json!({
            "cascade_id": "release",
            "phases": [
                {"name": "build", "run": "make", "description": "compiles"},
                {"name": "test", "tasks": [{"id": "a", "run": "x"}, {"id": "b", "run": "y"}]},
                {"name": "lint", "run": ["lint"], "needs": ["build"]},
                {"name": "ask", "await": {"approval": "go?"}, "needs": ["test", "lint"]},
                {"name": "free", "set": {"a": 1}, "needs": []},
            ],
        }))
        .unwrap();
        let outline = Outline::of(&cascade);
        let seen: Vec<_> = outline
            .phases
            .iter()
            .map(|p| format!("{} {} {:?} {}", p.name, p.kind, p.needs, p.tasks))
            .collect();
        assert_eq!(
            seen,
            [
                "build run [] 1",
                "test tasks [\"build\"] 2",
                "lint run [\"build\"] 1",
                "ask await [\"test\", \"lint\"] 0",
                "free set [] 0",
            ]
        );
        assert_eq!(outline.tasks(), 4);
    }
}
