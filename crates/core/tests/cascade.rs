//! Cascade files: what is right is read and stays the same, and every mistake has its place.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test the panic is the message")]

use std::collections::BTreeMap;

use parhelia_core::cascade::{Cascade, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mistakes(text: &str) -> Vec<String> {
    parse::read(text).expect_err("it has a mistake").iter().map(ToString::to_string).collect()
}

/// A phase list after the usual beginning; its first line is line 3.
fn phases(text: &str) -> String {
    format!("cascade_id: c\nphases:\n{text}")
}

const FULL: &str = r#"
cascade_id: all-of-it
description: Every key
inputs:
  who: {type: string, description: whom, default: you, options: [you, me]}
  n: {type: number, default: 2}
  bare:
workers: {count: 8, lifetime: task, provider: process, image: busybox, resources: {cpu_cores: 0.5, memory_mb: 512}, secrets: [token]}
resumable: false
phases:
  - name: first
    description: A line for sh
    run: echo "$WHO"
    env: {WHO: "{{ inputs.who }}", N: 1.50, YES: true}
    workdir: /tmp
    verify: [test, -e, "/tmp/{{ inputs.n }}"]
    retry: {max: 2, backoff: linear, base_seconds: 0.5, max_seconds: 10}
    timeout: 5m
    outputs: {said: "{{ stdout }}", code: "{{ exit_code }}"}
  - name: level
    tasks:
      - {id: a, title: The first, run: [echo, 5, "{{ outputs.first.said }}"], retry: 3}
      - {id: b, agent: {engine: script, prompt: "Do {{ inputs.who }}", arguments: [--fast]}, timeout: 2h}
  - name: ask
    needs: level
    when: inputs.n > 1
    await: {hitl: {kind: choice, question: "Which, {{ inputs.who }}?", options: [x, y]}, timeout: 90, on_timeout: default, default: x}
    outputs: {which: "{{ answer }}"}
  - name: sub
    needs: [ask, first]
    cascade:
      inputs: {k: "{{ outputs.ask.which }}"}
      definition:
        cascade_id: inner
        inputs: {k: {}}
        phases: [{name: only, set: {v: "{{ inputs.k }}"}}]
        outputs: {v: "{{ outputs.only.v }}"}
  - {name: wait, needs: [], await: {sensor: {command: {run: "true", every: 1}}}, timeout: 10s}
  - {name: later, await: {sensor: {time: {after: 1m}}}}
outputs: {result: ["{{ outputs.sub.v }}", 1]}
"#;

#[test]
fn every_key_is_read_and_stays_the_same() {
    let cascade = parse::read(FULL).unwrap_or_else(|m| panic!("{m:?}"));
    let json = serde_json::to_value(&cascade).unwrap();
    assert_eq!(json["phases"][0]["timeout"], 300);
    assert_eq!(json["phases"][0]["env"], json!({"WHO": "{{ inputs.who }}", "N": "1.50", "YES": "true"}));
    assert_eq!(json["phases"][1]["tasks"][0]["run"], json!(["echo", "5", "{{ outputs.first.said }}"]));
    assert_eq!(json["phases"][1]["tasks"][0]["retry"]["max"], 3);
    assert_eq!(json["phases"][2]["needs"], json!(["level"]));
    assert_eq!(json["phases"][2]["timeout"], 90);
    // As stored, as sent, and as a file again.
    assert_eq!(serde_json::from_value::<Cascade>(json.clone()).unwrap(), cascade);
    assert_eq!(parse::from_value(&json).unwrap(), cascade);
    assert_eq!(parse::read(&json.to_string()).unwrap(), cascade);
    assert_eq!(parse::check(&cascade), []);
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = "\
cascade_id: bad id
descripton: x
phases:
  - name: a
    run: echo {{ inputs.x }}
    agent: {engine: e, prompt: p}
    timeout: soon
  - name: a
    needs: [b]
    set: {v: '{{ outputs.c.x }}'}
  - name: b
    tasks:
      - {id: t, run: 'true'}
      - {id: t, run: []}
      - {id: u}
  - name: c
    await: {hitl: {kind: text, question: q, pattern: '('}}
";
    assert_eq!(
        mistakes(text),
        [
            "1:13: 'bad id' is not a cascade_id: 1 to 64 of A-Z a-z 0-9 _ . -",
            "2:1: a cascade has no key 'descripton' (did you mean 'description'?)",
            "5:10: a shell line is never changed, so a template in it would mean nothing (values reach a shell line \
             through env: (write \"$NAME\" in the line), or write run as a list)",
            "6:5: a phase does one thing, and 'run' is there already (take 'agent' away, or make it another)",
            "7:14: 'timeout' is not a duration (whole seconds, or text as 90s, 5m, 2h)",
            "8:11: another phase is called 'a' already: number 1",
            "9:12: these wait for each other: a → b → a (a phase without 'needs' needs the one above it; 'needs: []' \
             needs none)",
            "10:14: phase 'c' gives no 'x'; it gives answer, by, timed_out (say what 'x' is in its 'outputs')",
            "14:14: another task is called 't' already: number 1",
            "14:22: a command must not be empty",
            "15:9: a task needs one of run, agent",
            "17:54: '(' is not a regular expression: unclosed group",
        ]
    );
}

#[test]
fn needs_must_exist_and_lead_somewhere() {
    assert_eq!(
        mistakes(&phases("  - {name: build, set: {}}\n  - {name: b, needs: [buidl, b], set: {}}\n")),
        ["4:23: there is no phase 'buidl' (did you mean 'build'?)", "4:30: 'b' needs itself"]
    );
    let three = "  - {name: a, needs: [c], set: {}}\n  - {name: b, set: {}}\n  - {name: c, set: {}}\n";
    let told = mistakes(&phases(three));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("3:22: these wait for each other: a → c → b → a"), "{told:?}");
    // Two cycles are two mistakes.
    let two = "  - {name: a, needs: [b], set: {}}\n  - {name: b, needs: [a], set: {}}\n  - {name: c, needs: [d], set: {}}\n  - {name: d, needs: [c], set: {}}\n";
    assert_eq!(mistakes(&phases(two)).len(), 2);
}

#[test]
fn templates_name_only_what_is_there_by_then() {
    let text = phases(
        "  - {name: a, needs: [], set: {x: '{{ outputs.b.y }}'}}
  - {name: b, needs: [], set: {y: '{{ inputs.nope }}'}}
  - {name: c, needs: [a], set: {z: '{{ outputs.a.x }} {{ outputs.b.y }}'}}
  - {name: build-it, needs: [], set: {v: '{{ stdout }}'}, outputs: {w: '{{ stdout }}'}}
  - {name: d, set: {v: '{{ outputs.build-it.v }}', w: '{{ a.x }}', u: '{{ x '}}
",
    );
    let told = mistakes(&text);
    let expected = [
        "3:35: 'b' need not be over when this phase begins (add 'b' to its needs)",
        "4:35: there is no input 'nope'; there is none",
        "5:36: 'b' need not be over when this phase begins (add 'b' to its needs)",
        "6:42: a template here knows no 'stdout'; it knows inputs, outputs, session, range, dict ('stdout' is known in the \
         'outputs' of what it is of)",
    ];
    assert_eq!(&told[..4], expected, "{told:#?}");
    assert!(told.iter().any(|t| t.contains("write outputs['build-it']")), "{told:#?}");
    assert!(told.iter().any(|t| t.contains("(write outputs.a)")), "{told:#?}");
    assert!(told.iter().any(|t| t.contains("is not a template")), "{told:#?}");
}

#[test]
fn nothing_is_spliced_into_a_shell() {
    for run in [
        "'echo {{ inputs.x }}'",
        "[sh, -c, 'echo {{ inputs.x }}']",
        "[/bin/bash, -ec, 'echo {{ inputs.x }}']",
        "[busybox, sh, -c, '{{ inputs.x }}']",
    ] {
        let text = format!("cascade_id: c\ninputs: {{x: {{}}}}\nphases:\n  - {{name: a, run: {run}}}\n");
        let told = mistakes(&text);
        assert!(told.len() == 1 && told[0].contains("shell"), "{run}: {told:?}");
    }
    let fine = "cascade_id: c\ninputs: {x: {}}\nphases:\n  - {name: a, run: [sh, -c, 'echo \"$1\"', sh, '{{ inputs.x }}']}\n";
    assert!(parse::read(fine).is_ok());
}

#[test]
fn what_a_phase_cannot_have_is_refused() {
    let told = mistakes(&phases(
        "  - {name: a, tasks: [{id: t, run: 'true'}], env: {A: b}, timeout: 5}
  - {name: b, set: {}, retry: 2}
  - {name: c, await: {signal: go, on_timeout: continue}}
  - {name: d, await: {signal: go, on_timeout: default}, timeout: 5}
  - {name: e, await: {hitl: {kind: choice, question: q}}}
  - {name: f, await: {hitl: {kind: rating, question: q, min: 5, max: 2}}}
  - {name: g, await: {hitl: {kind: choice, question: q, options: [a]}, timeout: 5, on_timeout: default, default: b}}
  - {name: h, await: {sensor: {time: {}}}}
  - {name: i, await: {sensor: {time: {at: tomorrow}}}}
  - {name: j, cascade: {file: other.yaml}}
  - {name: k, run: 'true', env: {1A: b}}
  - {name: l, timeout: 0, run: 'true'}
",
    ));
    let lines: Vec<&str> = told.iter().map(|t| t.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["3", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"], "{told:#?}");
}

#[test]
fn a_file_that_is_no_cascade_says_so() {
    assert_eq!(mistakes(""), ["1:1: there is nothing in it; a cascade needs 'cascade_id' and 'phases'"]);
    assert!(mistakes("just text")[0].starts_with("1:1: a cascade must be a mapping"));
    assert_eq!(
        mistakes("cascade_id: ''\nphases: []\n"),
        ["1:13: a cascade_id must not be empty", "2:9: a cascade needs at least one phase"]
    );
    assert!(
        mistakes("cascade_id: c\nphases:\n  - name: a\n   run: x\n")[0].starts_with("4:"),
        "bad indentation"
    );
    assert!(mistakes(&"x".repeat(parse::LONGEST_TEXT + 1))[0].contains("at most 8 MiB"));
    let many = mistakes(&phases(&"  - {}\n".repeat(500)));
    assert_eq!(many.len(), parse::MOST_MISTAKES + 1);
    assert!(many.last().unwrap().contains("more mistakes"));
}

#[test]
fn sub_cascades_come_from_files() {
    let files: BTreeMap<&str, &str> = BTreeMap::from([
        ("lib/one.yaml", "cascade_id: one\ninputs: {k: {}}\nphases: [{name: x, cascade: two.yaml}]\n"),
        ("lib/two.yaml", "cascade_id: two\nphases: [{name: y, set: {}}]\n"),
        ("lib/bad.yaml", "cascade_id: bad\nphases:\n  - {name: y}\n"),
        ("lib/again.yaml", "cascade_id: again\nphases: [{name: y, cascade: {file: ../lib/./again.yaml}}]\n"),
        ("home.yaml", "cascade_id: home\nphases: [{name: y, cascade: ../top.yaml}]\n"),
    ]);
    let read = |text: &str| {
        parse::with_files("top.yaml", text, &mut |path| {
            files.get(path).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
        })
    };
    let top = |file: &str| {
        format!("cascade_id: top\nphases:\n  - name: a\n    cascade: {{file: {file}, inputs: {{k: 1}}}}\n")
    };
    let wrong =
        |text: &str| -> Vec<String> { read(text).unwrap_err().iter().map(ToString::to_string).collect() };
    let whole = read(&top("lib/one.yaml").replace("k: 1", "k: '1'")).unwrap();
    assert_eq!(parse::check(&whole), []);
    assert_eq!(serde_json::from_value::<Cascade>(serde_json::to_value(&whole).unwrap()).unwrap(), whole);
    assert_eq!(wrong(&top("lib/one.yaml")), ["4:47: 'k' must be text, not 1"]);
    assert_eq!(wrong(&top("nowhere.yaml")), ["4:21: cannot read 'nowhere.yaml': no such file"]);
    assert_eq!(
        wrong(&top("lib/bad.yaml")),
        ["lib/bad.yaml:3:5: a phase needs one of run, agent, tasks, await, cascade, set"]
    );
    assert_eq!(
        wrong(&top("lib/again.yaml")),
        ["lib/again.yaml:2:36: a cascade cannot contain itself: top.yaml → lib/again.yaml → lib/again.yaml"]
    );
    assert!(
        wrong("cascade_id: t\nphases: [{name: a, cascade: ./top.yaml}]\n")[0]
            .contains("cannot contain itself")
    );
    // Twice in each of many: refused, not multiplied.
    let mut count = 0;
    let doubled = parse::with_files(
        "0",
        "cascade_id: c\nphases: [{name: a, cascade: '1'}, {name: b, cascade: '1'}]\n",
        &mut |path| {
            count += 1;
            let next = path.parse::<u64>().unwrap() + 1;
            Ok(format!(
                "cascade_id: c\nphases: [{{name: a, cascade: '{next}'}}, {{name: b, cascade: '{next}'}}]\n"
            ))
        },
    );
    assert!(doubled.is_err() && count < 20_000, "{count}");
}

#[test]
fn a_level_of_ten_thousand_tasks_is_nothing_special() {
    let mut text = phases("  - name: wide\n    tasks:\n");
    for n in 0..10_000 {
        text.push_str(&format!(
            "      - id: t{n}\n        run: [echo, \"{{{{ inputs.x }}}}\"]\n        timeout: 5m\n"
        ));
    }
    text.push_str("inputs: {x: {default: '1'}}\n");
    let cascade = parse::read(&text).unwrap();
    assert_eq!(parse::check(&cascade), []);
    // And one that takes something of each.
    text =
        text.replace("        timeout: 5m\n", "        timeout: 5m\n        outputs: {v: '{{ stdout }}'}\n");
    text = text.replace("inputs:", "  - name: next\n    tasks:\ninputs:");
    let next: String = (0..10_000)
        .map(|n| format!("      - {{id: u{n}, run: [echo, '{{{{ outputs.wide.t{n}.v }}}}']}}\n"))
        .collect();
    parse::read(&text.replace("    tasks:\ninputs:", &format!("    tasks:\n{next}inputs:"))).unwrap();
    let mut chain = phases("");
    for n in 0..10_000 {
        chain.push_str(&format!("  - name: p{n}\n    set: {{v: {n}}}\n"));
    }
    assert_eq!(parse::read(&chain).unwrap().phases.len(), 10_000);
    chain.push_str("  - {name: more, set: {}}\n");
    assert!(mistakes(&chain)[0].contains("more than 10000 phases"));
    let wide: String = (0..20_001).map(|n| format!("      - {{id: t{n}, run: 'true'}}\n")).collect();
    assert!(
        mistakes(&phases(&format!("  - name: w\n    tasks:\n{wide}")))[0].contains("more than 20000 tasks")
    );
}

/// A definition that is right, made of its parts.
fn a_cascade() -> impl Strategy<Value = Value> {
    let word = "[a-z][a-z0-9_]{0,8}";
    let work = prop_oneof![
        Just(json!({"run": ["true"]})),
        Just(json!({"run": "echo $X", "env": {"X": "{{ inputs.n }}"}, "timeout": 5})),
        Just(json!({"set": {"v": "{{ inputs.n }}"}})),
        Just(json!({"await": {"signal": "go"}})),
        Just(json!({"tasks": [{"id": "a", "run": ["true"]}, {"id": "b", "run": "true"}]})),
        Just(json!({"agent": {"engine": "script", "prompt": "p"}, "retry": {"max": 1}})),
    ];
    (
        word,
        proptest::collection::vec(
            (work, proptest::option::of(proptest::collection::vec(0_usize..20, 0..3))),
            1..20,
        ),
    )
        .prop_map(|(id, parts)| {
            let phases: Vec<Value> = parts
                .into_iter()
                .enumerate()
                .map(|(n, (mut work, needs))| {
                    work["name"] = json!(format!("p{n}"));
                    if let Some(needs) = needs.filter(|_| n > 0) {
                        work["needs"] = needs.into_iter().map(|k| json!(format!("p{}", k % n))).collect();
                    }
                    work
                })
                .collect();
            json!({"cascade_id": id, "inputs": {"n": {"type": "number", "default": 1}}, "phases": phases})
        })
}

proptest! {
    #[test]
    fn what_is_right_is_accepted_and_round_trips(json in a_cascade()) {
        let cascade = parse::from_value(&json).map_err(|m| TestCaseError::fail(format!("{m:?}")))?;
        prop_assert_eq!(&parse::read(&json.to_string()).unwrap(), &cascade);
        let stored = serde_json::to_value(&cascade).unwrap();
        prop_assert_eq!(&serde_json::from_value::<Cascade>(stored.clone()).unwrap(), &cascade);
        prop_assert_eq!(&parse::from_value(&stored).unwrap(), &cascade);
    }

    #[test]
    fn a_phase_in_a_cycle_is_always_found(n in 2_usize..40, from in 0_usize..40, to in 0_usize..40) {
        let (from, to) = (from % n, to % n);
        let phases: Vec<Value> = (0..n)
            .map(|k| {
                let mut phase = json!({"name": format!("p{k}"), "set": {}});
                if k == from {
                    phase["needs"] = json!([format!("p{to}")]);
                }
                phase
            })
            .collect();
        let read = parse::from_value(&json!({"cascade_id": "c", "phases": phases}));
        // Each needs the one above it, so that one further down must not be needed.
        prop_assert_eq!(read.is_err(), to >= from, "{:?}", read);
    }
}

#[test]
fn a_variable_of_ours_is_a_mistake_with_its_place() {
    let text = phases("  - name: a\n    run: 'true'\n    env:\n      PARHELIA_TASK: x\n");
    let found = parse::read(&text).expect_err("it is ours");
    let place = (found[0].line, found[0].column);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().contains("'PARHELIA_TASK' is ours to set"), "{}", found[0]);
    assert_eq!(place.0, Some(6), "{found:?}");
}

#[test]
fn the_engines_of_a_cascade_are_known_with_those_below_it() {
    let cascade = parse::read(&phases(
        "  - {name: a, agent: {engine: one, prompt: x}}\n  - {name: b, tasks: [{id: t, agent: {engine: two, prompt: x}}, {id: u, run: 'true'}]}\n  - name: c\n    cascade: {definition: {cascade_id: d, phases: [{name: e, agent: {engine: three, prompt: x}}]}}\n",
    ))
    .unwrap();
    assert_eq!(cascade.engines().into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
}
