//! Two servers on one database, and a leader that is killed, frozen and woken again and again while there is work
//! for it. Never two writers: proved from the epochs in the history, not from what anybody says of itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use parhelia_providers::fake::World;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, Server, eventually, text};
use crate::load::number;
use crate::postgres::{Team, ask, leads, reaches, signal, until_leads};

const FAILOVERS: u64 = 20;

/// Work for whoever leads: containers of the shared provider, asked of whichever server answers.
fn keep_asking(homes: &[Home], over: &AtomicBool) -> Vec<String> {
    let mut asked = Vec::new();
    let mut n = 0_usize;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let home = &homes[n % homes.len()];
        let request = json!({ "provider": "fake", "command": ["agent"] }).to_string();
        let made = home.post_briefly("/api/v1/containers", &request);
        if let Some((201, body)) = made {
            let id = text(&serde_json::from_str::<Value>(&body).unwrap(), "id").to_owned();
            if n.is_multiple_of(3) {
                home.post_briefly(&format!("/api/v1/containers/{id}/terminate"), "{\"grace_seconds\": 0}");
            }
            asked.push(id);
        }
        sleep(Duration::from_millis(50));
    }
    asked
}

/// Not while it holds the lock of the world's file, which no real provider has: whoever follows would wait for
/// the frozen one. So the lock is ours until every thread of it stands.
fn freeze(team: &Team, server: &mut Server) {
    let tasks = format!("/proc/{}/task", rustix::process::Pid::from_child(server.child()).as_raw_nonzero());
    let stands = || {
        std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    };
    World::change_file(&team.world(), |_| {
        signal(server, Signal::STOP);
        eventually("every thread stands", || stands().then_some(()));
    })
    .unwrap();
}

#[test]
fn a_leader_killed_frozen_and_woken_again_and_again_never_writes_beside_its_successor() {
    let failovers = number("PARHELIA_SOAK_FAILOVERS").unwrap_or(FAILOVERS);
    let team = Team::new();
    let homes = [team.home(), team.home()];
    let mut servers = [Some(homes[0].up(&[])), Some(homes[1].up(&[]))];
    let over = AtomicBool::new(false);
    let (mut killed, mut frozen) = (0, 0);
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| keep_asking(&homes, &over));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut leader = eventually("one leads", || homes.iter().position(leads));
            for round in 0..failovers {
                let next = 1 - leader;
                if round % 4 == 3 {
                    killed += 1;
                    servers[leader].take().unwrap().kill();
                    until_leads(&homes[next]);
                    servers[leader] = Some(homes[leader].up(&[]));
                } else {
                    frozen += 1;
                    let former = servers[leader].as_mut().unwrap();
                    freeze(&team, former);
                    until_leads(&homes[next]);
                    let id = ask(&homes[next], "fake", &["agent"]);
                    reaches(&homes[next], &id, "running");
                    signal(former, Signal::CONT);
                    // Awake, it serves on as a follower, and knows what it slept through.
                    eventually("it follows", || {
                        let (_, info) = homes[leader].api("GET", "/api/v1/server", None);
                        (info["leads"] == false).then_some(())
                    });
                    reaches(&homes[leader], &id, "running");
                }
                // Whoever it is by now: a lease of two seconds may have run out on a busy machine.
                leader = eventually("one leads", || homes.iter().position(leads));
            }
        }));
        over.store(true, Ordering::Relaxed);
        let asked = asking.join().unwrap();
        done.unwrap_or_else(|cause| {
            homes.iter().for_each(|home| println!("{}:\n{}", home.path().display(), home.log()));
            std::panic::resume_unwind(cause)
        });
        asked
    });
    for id in &asked {
        eventually(&format!("{id} is where it should be"), || {
            let state = homes[0].seen(id)["state"].clone();
            (state == "running" || state == "terminated").then_some(())
        });
    }
    let led = one_writer_at_a_time(&team);
    println!(
        "{killed} killed, {frozen} frozen and woken; {led} events in the leaders' epochs; {} asked",
        asked.len()
    );
    let starts = World::change_file(&team.world(), |world| world.starts.clone()).unwrap();
    assert!(starts.values().all(|times| *times == 1), "{starts:?}");
    assert!(asked.iter().all(|id| homes[0].seen(id)["state"] == "terminated" || starts.contains_key(id)));
}

/// In the order of the history the leaders' epochs never go down, and each epoch has one writer. The same of every
/// home: its servers follow one another. Gives how many events leaders wrote.
fn one_writer_at_a_time(team: &Team) -> usize {
    let led = team.rows("SELECT epoch, owner_id FROM events WHERE epoch IS NOT NULL ORDER BY id");
    let epochs: Vec<i64> = led.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(epochs.is_sorted(), "an earlier leader wrote after its successor: {epochs:?}");
    let mut leader: BTreeMap<i64, &str> = BTreeMap::new();
    for (epoch, row) in epochs.iter().zip(&led) {
        assert_eq!(*leader.entry(*epoch).or_insert(&row[1]), row[1], "two leaders in epoch {epoch}");
    }
    let elected = team.rows(
        "SELECT epoch, (SELECT COUNT(*) FROM events o WHERE o.epoch = e.epoch AND o.id < e.id)
         FROM events e WHERE event_type = 'leader_elected' ORDER BY id",
    );
    assert!(elected.iter().all(|row| row[1] == "0"), "written in an epoch before its election: {elected:?}");
    // A leader may have written nothing but its election; the elections themselves leave no epoch out.
    assert_eq!(elected.len(), leader.len());

    let own = team
        .rows("SELECT o.home_id, e.owner_id FROM events e JOIN owners o ON o.id = e.owner_id ORDER BY e.id");
    let mut servers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &own {
        let of_home = servers.entry(&row[0]).or_default();
        if of_home.last() != Some(&row[1].as_str()) {
            assert!(!of_home.contains(&row[1].as_str()), "an earlier server of a home wrote after the next");
            of_home.push(&row[1]);
        }
    }
    led.len()
}
