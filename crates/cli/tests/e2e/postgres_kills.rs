//! On PostgreSQL, under load: the server is killed again and again, and so is PostgreSQL itself. Nothing that was
//! acknowledged is lost or doubled, and everything goes on by itself.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::eventually;
use crate::kills::kill_again_and_again;
use crate::load::{Dice, Evidence, number, prove, under_load};
use crate::postgres::{Team, until_leads};

const DATABASE_KILLS: u64 = 10;

fn in_postgres(team: &Team) -> Evidence {
    let events = team.rows("SELECT event_type, container_id FROM events WHERE container_id IS NOT NULL");
    let seqs = team.rows(
        "SELECT metadata::JSON->>'kills_seq' FROM heartbeats WHERE metadata::JSON->>'kills_seq' IS NOT NULL",
    );
    Evidence {
        events: events.into_iter().map(|mut row| (row.remove(0), row.remove(0))).collect(),
        seqs: seqs.into_iter().map(|row| row[0].parse().unwrap()).collect(),
    }
}

#[test]
fn a_server_killed_again_and_again_on_postgresql_loses_nothing_and_starts_nothing_twice() {
    let mut dice = Dice::of_this_run();
    let team = Team::new();
    let home = team.home();
    let first = home.up(&[]);
    let (known, _server) = under_load(&home, || kill_again_and_again(&home, first, &mut dice));
    prove(&home, known, || in_postgres(&team));
}

#[test]
fn postgresql_killed_again_and_again_loses_nothing_and_the_server_goes_on_by_itself() {
    let kills = number("PARHELIA_SOAK_DATABASE_KILLS").unwrap_or(DATABASE_KILLS);
    println!("PARHELIA_SOAK_DATABASE_KILLS={kills}");
    let mut dice = Dice::of_this_run();
    let team = Team::new();
    let home = team.home();
    let mut server = home.up(&[]);
    let (known, ()) = under_load(&home, || {
        for _ in 0..kills {
            sleep(Duration::from_millis(500 + dice.roll(1000)));
            // The postmaster, by SIGKILL: its backends go when they notice.
            team.postgres.tell("kill");
            let away = eventually("callers are told at once", || {
                home.reply("GET", "/api/v1/containers").filter(|reply| reply.status == 503)
            });
            assert!(away.head.contains("retry-after: "), "{away:?}");
            // A backend may outlive its postmaster for a moment, and answer.
            eventually("it is not ready", || (home.http("GET", "/readyz", None).0 == 503).then_some(()));
            sleep(Duration::from_millis(dice.roll(500)));
            team.postgres.tell("start");
            eventually("it is ready again", || (home.http("GET", "/readyz", None).0 == 200).then_some(()));
        }
    });
    assert_eq!(server.has_ended(), None, "{}", home.log());
    until_leads(&home);
    prove(&home, known, || in_postgres(&team));
}
