//! Which events somebody wants to hear of.

use crate::event::{Event, EventType, Severity};

/// All that is given must fit; what is left out fits everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interest {
    /// Any of these.
    pub types: Vec<EventType>,
    pub container_id: Option<String>,
    pub task_id: Option<String>,
    pub session_id: Option<String>,
    /// By the `workspace_id` in an event's details.
    pub workspace_id: Option<String>,
    /// This serious, or more.
    pub at_least: Option<Severity>,
}

impl Interest {
    pub fn covers(&self, event: &Event) -> bool {
        let fits = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        let workspace = event.details.get("workspace_id").and_then(|id| id.as_str());
        (self.types.is_empty() || self.types.contains(&event.event_type))
            && self.at_least.is_none_or(|least| event.event_type.severity() >= least)
            && fits(&self.container_id, event.container_id.as_deref())
            && fits(&self.task_id, event.task_id.as_deref())
            && fits(&self.session_id, event.session_id.as_deref())
            && fits(&self.workspace_id, workspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Source;

    fn event(event_type: EventType) -> Event {
        Event {
            id: 1,
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            event_type,
            container_id: Some("c-1".into()),
            worker_id: None,
            task_id: Some("t-1".into()),
            session_id: None,
            old_value: None,
            new_value: None,
            message: None,
            details: serde_json::json!({ "workspace_id": "w-1" }),
            source: Source::System,
        }
    }

    #[test]
    fn all_that_is_given_must_fit_and_nothing_given_fits_everything() {
        let dead = event(EventType::ContainerDead);
        let of = |change: fn(&mut Interest)| {
            let mut interest = Interest::default();
            change(&mut interest);
            interest.covers(&dead)
        };
        assert!(of(|_| {}));
        assert!(of(|i| i.types = vec![EventType::StopSent, EventType::ContainerDead]));
        assert!(!of(|i| i.types = vec![EventType::StopSent]));
        assert!(of(|i| i.container_id = Some("c-1".into())));
        assert!(!of(|i| i.container_id = Some("c-2".into())));
        assert!(!of(|i| (i.container_id, i.task_id) = (Some("c-1".into()), Some("t-2".into()))));
        assert!(!of(|i| i.session_id = Some("s-1".into())), "it is of no session");
        assert!(of(|i| i.workspace_id = Some("w-1".into())));
        assert!(!of(|i| i.workspace_id = Some("w-2".into())));
    }

    #[test]
    fn a_severity_means_at_least_that() {
        let from = |least| Interest { at_least: Some(least), ..Interest::default() };
        let (info, warning, error) =
            (EventType::StopSent, EventType::ContainerDegraded, EventType::ContainerDead);
        let heard = |least| [info, warning, error].map(|kind| from(least).covers(&event(kind)));
        assert_eq!(heard(Severity::Info), [true, true, true]);
        assert_eq!(heard(Severity::Warning), [false, true, true]);
        assert_eq!(heard(Severity::Error), [false, false, true]);
    }
}
