//! The server is killed again and again under load. Nothing that it acknowledged is lost, nothing is
//! started twice, and everything is found again.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Home, Server};
use crate::load::{Dice, Evidence, number, prove, under_load};

const KILLS: u64 = 50;

/// Kills the server of `home` again and again, in the middle of its start as often as in the middle of its
/// work; gives the last one, alive.
pub(crate) fn kill_again_and_again(home: &Home, first: Server, dice: &mut Dice) -> Server {
    let kills = number("PARHELIA_SOAK_KILLS").unwrap_or(KILLS);
    println!("PARHELIA_SOAK_KILLS={kills}");
    first.kill();
    for _ in 1..kills {
        let server = home.up_at_once(&[]);
        let most = if dice.roll(3) == 0 { 120 } else { 900 };
        sleep(Duration::from_millis(dice.roll(most)));
        server.kill();
    }
    home.up(&[])
}

#[test]
fn a_server_killed_again_and_again_loses_nothing_and_starts_nothing_twice() {
    let mut dice = Dice::of_this_run();
    let home = Home::with_config("[reconciler]\npoll_interval_seconds = 1\n");
    let first = home.up(&[]);
    let (known, _server) = under_load(&home, || kill_again_and_again(&home, first, &mut dice));
    prove(&home, known, || in_sqlite(&home));
}

fn in_sqlite(home: &Home) -> Evidence {
    let db = home.sqlite();
    let mut events =
        db.prepare("SELECT event_type, container_id FROM events WHERE container_id IS NOT NULL").unwrap();
    let mut seqs = db
        .prepare(
            "SELECT json_extract(metadata, '$.kills_seq') FROM heartbeats \
             WHERE json_extract(metadata, '$.kills_seq') IS NOT NULL",
        )
        .unwrap();
    let healthy: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(healthy, "ok");
    Evidence {
        events: events
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect(),
        seqs: seqs
            .query_map([], |row| row.get::<_, i64>(0))
            .unwrap()
            .map(|seq| seq.unwrap().unsigned_abs())
            .collect(),
    }
}
