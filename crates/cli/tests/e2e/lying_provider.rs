//! A provider that fails, lies, loses answers and changes its identity, under the real server. Its world is
//! a file that the test changes while the server runs.

use std::path::PathBuf;

use parhelia_core::ids::ContainerId;
use parhelia_core::sandbox::Tags;
use parhelia_providers::fake::{CreateFault, FakeSandbox, Faults, InspectFault, ListFault, StopFault, World};
use serde_json::{Value, json};

use crate::harness::{Home, eventually, text};

/// A home whose server has the fake provider besides its own.
struct Lab {
    home: Home,
    world: PathBuf,
}

impl Lab {
    fn new(reconciler: &str, world: World) -> Self {
        let home = Home::new();
        let path = home.path().join("world.json");
        world.write(&path).unwrap();
        home.configure(&format!(
            "fake_world = '{}'\n[reconciler]\npoll_interval_seconds = 1\nprovider_timeout_seconds = 1\n{reconciler}\n\
             [[prices]]\nprovider = 'fake'\neffective_from = '2026-01-01T00:00:00Z'\nsandbox_hour = 0.5\n",
            path.display()
        ));
        Self { home, world: path }
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        World::change_file(&self.world, change).unwrap()
    }

    fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.change(|world| change(&mut world.faults));
    }

    fn started(&self, id: &str) -> u32 {
        self.change(|world| world.starts.get(id).copied().unwrap_or(0))
    }

    fn stopped(&self, sandbox: &str) -> u32 {
        self.change(|world| world.stops.get(sandbox).copied().unwrap_or(0))
    }

    /// Asks for a container; nothing is awaited.
    fn ask(&self) -> String {
        let request = json!({ "provider": "fake", "command": ["agent"] });
        let (status, made) = self.home.api("POST", "/api/v1/containers", Some(request));
        assert_eq!(status, 201, "{made}");
        text(&made, "id").to_owned()
    }

    fn run(&self) -> String {
        let id = self.ask();
        self.home.until_seen(&id, "state", "running");
        id
    }

    fn sandbox(&self, id: &str) -> String {
        text(&self.home.seen(id), "sandbox_id").to_owned()
    }

    /// Changes what the provider has of this container.
    fn meddle(&self, id: &str, change: impl Fn(&mut FakeSandbox)) {
        let of = |s: &&mut FakeSandbox| s.tags.container.as_str() == id;
        self.change(|world| world.sandboxes.iter_mut().filter(of).for_each(change));
    }

    /// Something that was started behind our back, eleven hours ago.
    fn plant(&self, instance: &str, container: &str) -> String {
        let sandbox_id = format!("sb-planted-{container}");
        let made = "2026-01-21T00:00:00Z".parse().unwrap();
        let planted = FakeSandbox {
            sandbox_id: sandbox_id.clone(),
            engine: String::new(),
            tags: Tags {
                instance: instance.to_owned(),
                container: ContainerId::parse(container).unwrap(),
                task: None,
            },
            command: vec!["agent".to_owned()],
            resources: Default::default(),
            created_at: made,
            visible_at: made,
            exit_code: None,
            ended_at: None,
            removed: false,
        };
        self.change(|world| world.sandboxes.push(planted));
        sandbox_id
    }

    fn all_running(&self, ids: &[String], when: &str) {
        for id in ids {
            let seen = self.home.seen(id);
            assert_eq!(seen["state"], "running", "{when}: {seen}");
            assert_eq!(seen["desired"], "running", "{when}: {seen}");
        }
    }

    /// Whole passes, each begun after the one before has ended.
    fn passes(&self, count: usize) -> Value {
        (0..count).fold(Value::Null, |_, _| self.home.reconcile())
    }

    fn alive(&self, sandbox: &str) -> bool {
        self.change(|world| {
            world.sandboxes.iter().any(|s| s.sandbox_id == sandbox && s.ended_at.is_none() && !s.removed)
        })
    }
}

/// Whose lost creates are decided after this long.
fn settling(seconds: u32) -> World {
    let mut world = World::new("fake");
    world.create_settles_seconds = seconds;
    world
}

fn usual() -> World {
    settling(1)
}

fn of_fake(status: &Value) -> &Value {
    status["providers"].as_array().unwrap().iter().find(|p| p["name"] == "fake").unwrap()
}

#[test]
fn errors_empty_half_and_partial_lists_end_nothing_and_the_truth_converges() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let ids: Vec<String> = (0..6).map(|_| lab.run()).collect();
    let all_lies = [
        ListFault::Error,
        ListFault::Empty,
        ListFault::Half,
        ListFault::Partial,
        ListFault::Hang,
        ListFault::Empty,
    ];
    for lie in all_lies {
        lab.faults(|f| f.list = lie);
        let status = lab.passes(3);
        lab.all_running(&ids, &format!("{lie:?}"));
        let silent = matches!(lie, ListFault::Error | ListFault::Hang);
        assert_eq!(of_fake(&status)["unreachable_since"].is_string(), silent, "{lie:?}: {status}");
        assert_eq!(
            of_fake(&status)["breaker_since"].is_string(),
            lie == ListFault::Empty,
            "{lie:?}: {status}"
        );
    }
    lab.faults(|f| f.inspect = InspectFault::Error);
    lab.passes(3);
    lab.all_running(&ids, "an empty list, and nobody can be inspected");
    lab.faults(|f| f.inspect = InspectFault::Hang);
    lab.passes(1);
    lab.all_running(&ids, "an empty list, and an inspection that never answers");
    let failed = lab.home.run(&["reconciler", "run"]);
    assert_eq!(failed.code, 0, "the listing itself was answered: {failed:?}");
    lab.faults(|f| f.list = ListFault::Error);
    let failed = lab.home.run(&["reconciler", "run"]);
    assert!(failed.code == 1 && failed.err.contains("no answer from fake"), "{failed:?}");

    lab.faults(|f| *f = Faults::default());
    let status = lab.passes(2);
    lab.all_running(&ids, "the lies are over");
    assert!(of_fake(&status)["breaker_since"].is_null() && of_fake(&status)["unreachable_since"].is_null());
    assert!(lab.home.told("container_terminated").is_empty());
    for (kind, least) in [
        ("provider_unreachable", 2),
        ("provider_recovered", 2),
        ("breaker_tripped", 2),
        ("breaker_released", 2),
    ] {
        assert!(lab.home.told(kind).len() >= least, "{kind}: {:?}", lab.home.told(kind));
    }

    let sandboxes: Vec<String> = ids.iter().map(|id| lab.sandbox(id)).collect();
    lab.change(|world| world.sandboxes.iter_mut().for_each(|s| s.removed = true));
    let before = lab.home.told("breaker_tripped").len();
    lab.passes(2);
    lab.all_running(&ids, "all vanished at once: not believed yet");
    assert_eq!(lab.home.told("breaker_tripped").len(), before + 1);
    for (id, sandbox) in ids.iter().zip(&sandboxes) {
        let ended = lab.home.until_seen(id, "state", "terminated");
        assert_eq!(text(&ended, "termination_reason"), "external");
        let told = lab.home.told("container_terminated");
        let event = told.iter().find(|e| e["container_id"] == **id).unwrap();
        assert!(text(event, "message").contains(&format!("{sandbox} no longer running in fake")), "{event}");
    }
}

#[test]
fn a_few_that_are_really_gone_are_believed_at_once() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let ids: Vec<String> = (0..3).map(|_| lab.run()).collect();
    lab.faults(|f| f.list = ListFault::Empty);
    lab.passes(3);
    lab.all_running(&ids, "not listed, but there when asked");
    lab.change(|world| world.sandboxes.iter_mut().for_each(|s| s.removed = true));
    lab.passes(1);
    for id in &ids {
        let ended = lab.home.seen(id);
        assert_eq!((text(&ended, "state"), text(&ended, "termination_reason")), ("terminated", "external"));
    }
    assert!(lab.home.told("breaker_tripped").is_empty());
}

/// More than can be asked about while the provider takes its time with each: asked about in turns, all of them are believed
/// gone in the end, and the breaker closes.
#[test]
fn hundreds_that_are_really_gone_are_believed_in_the_end_although_the_provider_is_slow() {
    const MANY: u64 = 300;
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let instance = lab.home.instance_id();
    for n in 0..MANY {
        lab.plant(&instance, ContainerId::mint(1_767_225_600_000, n).as_str());
    }
    let counted = |all: bool| {
        let (_, listed) = lab.home.api("GET", &format!("/api/v1/containers?all={all}&limit=1000"), None);
        listed["containers"].as_array().unwrap().len() as u64
    };
    eventually("each has a record", || (counted(false) == MANY).then_some(()));
    lab.change(|world| {
        world.sandboxes.iter_mut().for_each(|sandbox| sandbox.removed = true);
        world.faults.slow_millis = 40;
    });
    let mut left = MANY;
    while left > 0 {
        left = eventually("fewer are taken for alive", || Some(counted(false)).filter(|now| *now < left));
    }
    let told = |kind: &str| lab.home.told(kind).len();
    assert!(told("breaker_tripped") > 0);
    // Told with the pass that recorded the last of them.
    eventually("the breaker is closed", || {
        (told("breaker_tripped") == told("breaker_released")).then_some(())
    });
    assert_eq!(counted(true), MANY);
}

#[test]
fn another_engine_under_the_same_name_touches_nothing_of_the_first() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let ids: Vec<String> = (0..5).map(|_| lab.run()).collect();
    lab.change(|world| world.identity = "other".to_owned());
    let status = lab.passes(3);
    lab.all_running(&ids, "another engine answers");
    assert_eq!(of_fake(&status)["identity"], "other");
    let changed = lab.home.told("provider_identity_changed");
    let [event] = &changed[..] else { panic!("told once: {changed:?}") };
    assert_eq!((text(event, "old_value"), text(event, "new_value")), ("fake", "other"));
    let waiting = of_fake(&status)["last_cycle"]["waiting"].as_array().unwrap();
    assert!(waiting.iter().any(|w| w["id"] == *ids[0] && text(w, "why").contains("another one answers now")));
    let there = lab.run();
    lab.change(|world| world.identity = "fake".to_owned());
    lab.passes(3);
    lab.all_running(&ids, "the first engine is back");
    assert_eq!(lab.home.seen(&there)["state"], "running", "that of the second engine waits for it");
    lab.meddle(&ids[0], |s| s.removed = true);
    lab.home.until_seen(&ids[0], "state", "terminated");
    assert!(lab.home.told("breaker_tripped").is_empty());
}

#[test]
fn a_lost_answer_to_a_create_starts_nothing_twice() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    lab.faults(|f| f.create = CreateFault::LostAfter);
    let adopted = lab.run();
    assert_eq!(lab.started(&adopted), 1);
    assert!(lab.home.events_of(&adopted).contains(&"container_adopted".to_owned()));
    assert_eq!(lab.home.seen(&adopted)["create_attempts"], 1);

    // Where a name can be created once only, a lost request is simply repeated.
    lab.change(|world| world.create_is_idempotent = true);
    for fault in [CreateFault::LostBefore, CreateFault::Hang] {
        lab.faults(|f| f.create = fault);
        let id = lab.ask();
        eventually("it was asked for", || {
            (lab.home.seen(&id)["create_attempts"].as_i64() >= Some(1)).then_some(())
        });
        lab.faults(|f| f.create = CreateFault::None);
        let running = lab.home.until_seen(&id, "state", "running");
        assert_eq!(lab.started(&id), 1, "{fault:?}: {running}");
        assert_eq!(running["termination_reason"], Value::Null);
    }
    assert!(lab.home.told("create_lost").is_empty());
    assert!(lab.home.json(&["containers", "orphans"]).as_array().unwrap().is_empty());
}

#[test]
fn a_late_arrival_is_an_orphan_beside_its_successor_and_never_a_twin() {
    let lab = Lab::new("orphan_grace_period_seconds = 1", settling(3));
    let _server = lab.home.up(&[]);
    lab.faults(|f| f.create = CreateFault::Late(7));
    let first = lab.ask();
    eventually("it was asked for", || (lab.started(&first) == 1).then_some(()));
    lab.faults(|f| f.create = CreateFault::None);
    let lost = lab.home.until_seen(&first, "state", "terminated");
    assert_eq!(text(&lost, "termination_reason"), "create_lost");
    let told = lab.home.told("create_lost");
    let successor = text(&told[0]["details"], "successor").to_owned();
    let running = lab.home.until_seen(&successor, "state", "running");
    assert_eq!(running["metadata"]["successor_of"], *first);

    let orphan = eventually("the late arrival is an orphan", || {
        let listed = lab.home.json(&["containers", "orphans"]);
        listed.as_array().unwrap().first().filter(|c| c["state"] == "orphaned").cloned()
    });
    let late = text(&orphan, "sandbox_id");
    assert!(text(&orphan, "id") != first && text(&orphan, "id") != successor, "{orphan}");
    assert_ne!(late, lab.sandbox(&successor));
    assert_eq!((lab.started(&first), lab.started(&successor)), (1, 1));
    lab.home.ok(&["cleanup", "--orphans", "--yes"]);
    assert!(!lab.alive(late));
    lab.passes(2);
    assert_eq!(lab.home.seen(&successor)["state"], "running");
    assert!(lab.alive(&lab.sandbox(&successor)));
    assert_eq!(lab.home.seen(&first)["state"], "terminated", "its record stays closed");
    assert_eq!(
        lab.home.all_seen().len(),
        3,
        "the lost one, its successor, the orphan: {:?}",
        lab.home.all_seen()
    );
}

#[test]
fn a_refused_create_is_told_to_the_one_who_asked() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    lab.faults(|f| f.create = CreateFault::Reject);
    let said = lab.home.run(&["containers", "run", "--provider", "fake", "--", "agent"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("could not start: the fake provider refuses"), "{said:?}");
    let told = lab.home.told("create_failed");
    let [event] = &told[..] else { panic!("one refusal, one event: {told:?}") };
    let row = lab.home.seen(text(event, "container_id"));
    assert_eq!((text(&row, "state"), text(&row, "termination_reason")), ("terminated", "create_failed"));
    lab.passes(2);
    assert_eq!(lab.home.told("create_failed").len(), 1, "it is not tried again");
}

#[test]
fn a_stop_is_repeated_until_the_provider_shows_the_end() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let end = |id: &str| drop(lab.home.ok(&["containers", "terminate", id, "--force", "--yes", "--no-wait"]));
    let attempts = |id: &str| lab.home.seen(id)["stop_attempts"].as_i64().unwrap();

    let refused = lab.run();
    lab.faults(|f| f.stop = StopFault::Error);
    end(&refused);
    let row = eventually("it was refused twice", || {
        let row = lab.home.seen(&refused);
        (row["stop_attempts"].as_i64() >= Some(2) && row["stop_error"].is_string()).then_some(row)
    });
    assert!(row["state"] == "running" && text(&row, "stop_error").contains("told to fail"), "{row}");
    assert!(lab.home.events_of(&refused).contains(&"stop_failed".to_owned()));
    lab.faults(|f| f.stop = StopFault::None);
    let ended = lab.home.until_seen(&refused, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "manual");
    assert!(ended["stop_confirmed_at"].is_string());
    assert_eq!(lab.stopped(&lab.sandbox(&refused)), 1);

    let ignored = lab.run();
    lab.faults(|f| f.stop = StopFault::Ignore);
    end(&ignored);
    eventually("it was asked again", || (attempts(&ignored) >= 2).then_some(()));
    let row = lab.home.seen(&ignored);
    assert!(row["state"] == "running" && row["stop_confirmed_at"].is_null(), "yes is not done: {row}");
    lab.faults(|f| f.stop = StopFault::None);
    lab.home.until_seen(&ignored, "state", "terminated");
    assert_eq!(lab.stopped(&lab.sandbox(&ignored)), 1);

    let unheard = lab.run();
    lab.faults(|f| f.stop = StopFault::LostAfter);
    end(&unheard);
    let ended = lab.home.until_seen(&unheard, "state", "terminated");
    assert_eq!(text(&ended, "termination_reason"), "manual");
    assert_eq!(lab.stopped(&lab.sandbox(&unheard)), 1);
}

#[test]
fn orphans_end_by_themselves_when_that_is_wanted_and_foreign_ones_never() {
    let lab = Lab::new("auto_terminate_orphans = true", usual());
    let _server = lab.home.up(&[]);
    let wanted = lab.run();
    let orphan = lab.plant(&lab.home.instance_id(), "c-planted0001");
    let foreign = lab.plant("somebody-else", "c-planted0002");
    let ended = eventually("the orphan is terminated", || {
        let (status, row) = lab.home.api("GET", "/api/v1/containers/c-planted0001", None);
        (status == 200 && row["state"] == "terminated").then_some(row)
    });
    assert_eq!(text(&ended, "termination_reason"), "orphan_cleanup");
    assert_eq!((text(&ended, "desired_by"), lab.stopped(&orphan)), ("reconciler", 1));
    lab.passes(3);
    assert!(lab.alive(&foreign) && lab.stopped(&foreign) == 0, "it is not ours to end");
    assert_eq!(lab.home.told("foreign_detected").len(), 1);
    assert_eq!(lab.home.seen(&wanted)["state"], "running");
}

#[test]
fn the_sandboxes_of_another_instance_are_shown_with_their_cost_and_taken_over_on_demand() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let foreign = lab.plant("11111111-lost", "c-planted0003");
    let instance = eventually("the other instance is listed", || {
        let all = lab.home.json(&["instances", "list"]);
        all.as_array().unwrap().iter().find(|i| i["id"] == "11111111-lost").cloned()
    });
    assert!(instance["cost"].as_f64().unwrap() > 0.5 && instance["cost_per_hour_usd"] == 0.5, "{instance}");
    assert_eq!(text(&instance["foreign"][0], "sandbox"), foreign);
    let totals = lab.home.api("GET", "/api/v1/containers", None).1["totals"].clone();
    assert_eq!((totals["foreign"].as_i64(), totals["total"].as_i64()), (Some(1), Some(0)), "{totals}");
    lab.passes(2);
    assert!(lab.home.all_seen().is_empty(), "seeing is not taking");

    let adopted = lab.home.json(&["instances", "adopt", "1111", "--yes"]);
    assert_eq!(adopted["containers"], json!(["c-planted0003"]));
    lab.passes(2);
    let row = lab.home.seen("c-planted0003");
    assert_eq!((text(&row, "state"), text(&row, "sandbox_id")), ("running", &*foreign));
    assert!(row["cost"].as_f64().unwrap() > 0.5, "what it has cost so far is not forgotten: {row}");
    assert_eq!(lab.home.told("instance_adopted").len(), 1);
    lab.home.ok(&["containers", "terminate", "c-planted0003", "--yes"]);
    assert!(!lab.alive(&foreign));
    let left = lab.home.api("GET", "/api/v1/containers", None).1["totals"]["foreign"].clone();
    assert_eq!(left, 0);
}

#[test]
fn a_terminated_one_that_lives_is_corrected_or_ended_again_as_was_wanted() {
    let lab = Lab::new("", usual());
    let _server = lab.home.up(&[]);
    let mistaken = lab.run();
    lab.meddle(&mistaken, |s| s.removed = true);
    let gone = lab.home.until_seen(&mistaken, "state", "terminated");
    assert_eq!(text(&gone, "termination_reason"), "external");
    lab.meddle(&mistaken, |s| s.removed = false);
    let back = lab.home.until_seen(&mistaken, "state", "running");
    assert!(back["terminated_at"].is_null() && back["termination_reason"].is_null(), "{back}");
    assert!(lab.home.events_of(&mistaken).contains(&"state_drift_corrected".to_owned()));
    assert_eq!(lab.stopped(&lab.sandbox(&mistaken)), 0);

    let unwanted = lab.run();
    let sandbox = lab.sandbox(&unwanted);
    lab.home.ok(&["containers", "terminate", &unwanted, "--yes"]);
    assert_eq!(lab.stopped(&sandbox), 1);
    lab.meddle(&unwanted, |s| s.ended_at = None);
    eventually("it is ended again", || (lab.stopped(&sandbox) == 2).then_some(()));
    let ended = lab.home.until_seen(&unwanted, "state", "terminated");
    assert_eq!((text(&ended, "termination_reason"), text(&ended, "desired")), ("manual", "terminated"));
    assert!(!lab.alive(&sandbox));
    assert_eq!(lab.home.seen(&mistaken)["state"], "running");
    assert_eq!(lab.home.all_seen().len(), 2, "no second row for either");
}
