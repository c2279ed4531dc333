//! Small cascades of every kind of phase but an agent's, in sequences and graphs.

use serde_json::{Map, Value, json};

use crate::edge::Dice;

/// What is fired and waited for.
pub(crate) const SIGNALS: [&str; 2] = ["go", "ready"];

pub(crate) fn cascade(dice: &Dice, depth: u64) -> Value {
    let count = 1 + dice.roll(if depth == 0 { 6 } else { 3 });
    let phases: Vec<Value> = (0..count).map(|place| phase(dice, place, depth)).collect();
    json!({
        "cascade_id": format!("sim-{depth}"),
        "workers": { "count": 1 + dice.roll(3), "provider": "fake" },
        "resumable": dice.chance(95),
        "phases": phases,
    })
}

fn name(place: u64) -> String {
    format!("p{place}")
}

fn phase(dice: &Dice, place: u64, depth: u64) -> Value {
    let mut phase = Map::new();
    phase.insert("name".into(), json!(name(place)));
    match dice.roll(100) {
        0..30 => {
            run(dice, &mut phase);
        }
        30..48 => {
            let tasks = (0..2 + dice.roll(3)).map(|at| {
                let mut task = Map::new();
                task.insert("id".into(), json!(format!("t{at}")));
                run(dice, &mut task);
                Value::Object(task)
            });
            phase.insert("tasks".into(), tasks.collect());
        }
        48..58 => drop(phase.insert("set".into(), json!({ "place": place }))),
        58..70 if depth < 2 => {
            phase.insert("cascade".into(), json!({ "definition": cascade(dice, depth + 1) }));
        }
        _ => wait(dice, &mut phase),
    }
    if place > 0 && dice.chance(40) {
        let needs: Vec<String> = (0..place).filter(|_| dice.chance(40)).map(name).collect();
        phase.insert("needs".into(), json!(needs));
    }
    if dice.chance(12) {
        let when = if dice.chance(50) { "1 == 1" } else { "1 == 2" };
        phase.insert("when".into(), json!(when));
    }
    Value::Object(phase)
}

fn run(dice: &Dice, to: &mut Map<String, Value>) {
    to.insert("run".into(), json!(["work"]));
    if dice.chance(60) {
        let base = 1 + dice.roll(20);
        to.insert("retry".into(), json!({ "max": 1 + dice.roll(3), "base_seconds": base }));
    }
    if dice.chance(20) {
        to.insert("verify".into(), json!(["look"]));
    }
    if dice.chance(15) {
        to.insert("timeout".into(), json!(30 + dice.roll(600)));
    }
    if dice.chance(15) {
        to.insert("outputs".into(), json!({ "said": "{{ stdout }}" }));
    }
}

fn wait(dice: &Dice, phase: &mut Map<String, Value>) {
    let signal = dice.pick(&SIGNALS).copied().unwrap_or("go");
    let (mut wanted, default) = match dice.roll(8) {
        0..3 => (json!({ "signal": signal }), json!({ "by": "default" })),
        3 => (json!({ "approval": "may it?" }), json!(true)),
        4 => (json!({ "checkpoint": "is it right?" }), json!(true)),
        5 => (json!({ "hitl": { "kind": "confirmation", "question": "really?" } }), json!(false)),
        6 => {
            let question = json!({ "kind": "choice", "question": "which?", "options": ["a", "b", "c"] });
            (json!({ "hitl": question }), json!("b"))
        }
        _ => (json!({ "sensor": { "time": { "after": 1 + dice.roll(300) } } }), json!(null)),
    };
    if dice.chance(40) && wanted.get("sensor").is_none() {
        phase.insert("timeout".into(), json!(20 + dice.roll(900)));
        match dice.roll(3) {
            0 => wanted["on_timeout"] = json!("fail"),
            1 => wanted["on_timeout"] = json!("continue"),
            _ => {
                wanted["on_timeout"] = json!("default");
                wanted["default"] = default;
            }
        }
    }
    phase.insert("await".into(), wanted);
}
