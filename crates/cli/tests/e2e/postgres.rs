//! Servers on one PostgreSQL: what a leader and a follower do, and what they do without their database. Each test
//! has a PostgreSQL of its own.

#[path = "../../../store/tests/common/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "the store's tests use the rest")]
pub(crate) mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use parhelia_core::session::LEASE_SECONDS;
use parhelia_providers::fake::World;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, Reply, Server, eventually, text};
use crate::sessions::{begin, until_session};

/// Homes that share a database and the world of a fake provider.
pub(crate) struct Team {
    pub(crate) postgres: server::Server,
    pub(crate) url: String,
    /// Of the world, and of the lock beside it.
    dir: tempfile::TempDir,
}

impl Team {
    pub(crate) fn new() -> Self {
        let postgres = server::Server::start();
        let url = postgres.database();
        let team = Self { postgres, url, dir: tempfile::tempdir().unwrap() };
        World::default().write(&team.world()).unwrap();
        team
    }

    pub(crate) fn world(&self) -> PathBuf {
        self.dir.path().join("world.json")
    }

    /// A home of this team. Its lease is short: a test waits for it whenever a leader freezes.
    pub(crate) fn home(&self) -> Home {
        Home::with_config(&self.configuration())
    }

    pub(crate) fn configuration(&self) -> String {
        format!(
            "fake_world = '{}'\n[server]\ndatabase_url = '{}'\nleader_lease_seconds = 2\n\
             [reconciler]\npoll_interval_seconds = 1\n",
            self.world().display(),
            self.url
        )
    }

    /// What the database itself says: lines of columns.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let database = self.url.rsplit('/').next().unwrap();
        let told = self.postgres.sql(database, sql);
        told.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    }

    pub(crate) fn database(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    pub(crate) fn until_down(&self) {
        eventually("PostgreSQL is down", || (!self.postgres.is_up()).then_some(()));
    }
}

pub(crate) fn leads(home: &Home) -> bool {
    home.try_http("GET", "/api/v1/server", None)
        .and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok())
        .is_some_and(|info| info["leads"] == true)
}

pub(crate) fn until_leads(home: &Home) {
    eventually("it leads", || leads(home).then_some(()));
}

pub(crate) fn ask(home: &Home, provider: &str, command: &[&str]) -> String {
    let request = json!({ "provider": provider, "command": command });
    let (status, made) = home.api("POST", "/api/v1/containers", Some(request));
    assert_eq!(status, 201, "{made}");
    text(&made, "id").to_owned()
}

pub(crate) fn reaches(home: &Home, id: &str, state: &str) {
    eventually(&format!("{id} is {state}"), || {
        let (_, found) = home.api("GET", &format!("/api/v1/containers/{id}"), None);
        (found["state"] == state).then_some(())
    });
}

pub(crate) fn signal(server: &mut Server, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(server.child()), signal).unwrap();
}

#[test]
fn a_follower_serves_and_what_it_is_asked_is_done_by_whom_it_concerns() {
    let team = Team::new();
    // Nobody freezes here, so nobody has to wait for a lease: it may be long.
    let patient = team.configuration().replace("leader_lease_seconds = 2", "leader_lease_seconds = 30");
    let (one, two) = (Home::with_config(&patient), Home::with_config(&patient));
    let first = one.up(&[]);
    until_leads(&one);
    let _second = two.up(&[]);
    assert!(!leads(&two));

    // Shared: asked of the follower, made by the leader, seen by both.
    let shared = ask(&two, "fake", &["agent"]);
    reaches(&two, &shared, "running");
    reaches(&one, &shared, "running");
    // A process belongs to its home, whoever leads; ending it can be asked of either.
    let own = ask(&two, "process", &["sleep", "1000"]);
    reaches(&two, &own, "running");
    assert!(Path::new(&two.path().join("jobs")).read_dir().unwrap().count() > 0);
    let (status, _) =
        one.api("POST", &format!("/api/v1/containers/{own}/terminate"), Some(json!({"grace_seconds": 0})));
    assert_eq!(status, 200);
    reaches(&one, &own, "terminated");
    // A pass over everything can be asked of a follower too.
    let (status, passes) = two.api("POST", "/api/v1/reconciler/run", None);
    assert_eq!(status, 200, "{passes}");

    // The leader is killed: the follower leads at once, and the first comes back as a follower.
    first.kill();
    until_leads(&two);
    let another = ask(&two, "fake", &["agent"]);
    reaches(&two, &another, "running");
    let _first = one.up(&[]);
    assert!(!leads(&one));
    let elected = "SELECT owner_id, epoch FROM events WHERE event_type = 'leader_elected' ORDER BY id";
    let elected = team.rows(elected);
    assert_eq!(elected.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["1", "2"]);
    // Every event of a server says which one wrote it, over the API too.
    let told = two.told("leader_elected");
    assert_eq!((text(&told[1], "owner_id"), &told[1]["epoch"]), (elected[1][0].as_str(), &json!(2)));
    let told = two.told("container_started");
    assert!(told.iter().all(|event| event["owner_id"].is_string()), "{told:?}");
    // The address with its password is nowhere to be seen, not even in the log.
    assert!(!one.log().contains(&team.url));
}

#[test]
fn without_its_database_a_server_says_so_and_comes_back_by_itself() {
    let team = Team::new();
    let home = team.home();
    let _server = home.up(&[]);
    until_leads(&home);
    let id = ask(&home, "process", &["sleep", "1000"]);
    reaches(&home, &id, "running");

    team.postgres.tell("stop");
    eventually("it is not ready", || (home.http("GET", "/readyz", None).0 == 503).then_some(()));
    let reply = home.reply("GET", "/api/v1/containers").unwrap();
    assert!(reply.status == 503 && reply.head.contains("retry-after"), "{reply:?}");
    team.postgres.tell("start");
    eventually("it is ready again", || (home.http("GET", "/readyz", None).0 == 200).then_some(()));
    until_leads(&home);
    let (_, found) = home.api("GET", &format!("/api/v1/containers/{id}"), None);
    assert_eq!(found["state"], "running");
    let more = ask(&home, "fake", &["agent"]);
    reaches(&home, &more, "running");
}

/// Neither could renew its lease, and neither could see that of the other: that is nobody's death.
#[test]
fn an_outage_that_outlasts_every_lease_ends_no_server_and_moves_no_session() {
    let team = Team::new();
    let homes = [team.home(), team.home()];
    let _servers = homes.each_ref().map(|home| home.up(&[]));
    for home in &homes {
        let waits = json!([{ "name": "hear", "await": { "signal": "never" } }]);
        let id = begin(home, json!({ "cascade_id": "waits", "phases": waits }));
        until_session(home, &id, "blocked");
    }
    let held = || team.rows("SELECT session_id, owner_id, owner_epoch FROM sessions ORDER BY session_id");
    let living = || team.rows("SELECT id, lease_until FROM owners WHERE ended_at IS NULL ORDER BY id");
    let (held_before, before) = (held(), living());
    assert_eq!((held_before.len(), before.len()), (2, 2));

    team.postgres.tell("stop");
    team.until_down();
    // What is shown here is that time alone does nothing.
    std::thread::sleep(Duration::from_secs(LEASE_SECONDS as u64 + 10));
    team.postgres.tell("start");
    team.postgres.until_up();
    let after = eventually("each has renewed its lease, or is gone", || {
        Some(living()).filter(|now| now.iter().all(|owner| !before.contains(owner)))
    });
    let ids = |owners: &[Vec<String>]| owners.iter().map(|owner| owner[0].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&after), ids(&before), "{}", homes.each_ref().map(Home::log).concat());
    assert_eq!(held(), held_before);
}

#[test]
fn a_server_that_starts_without_its_database_waits_for_it_and_says_so() {
    let team = Team::new();
    team.postgres.tell("stop");
    team.until_down();
    let home = Home::with_config("");
    home.configure(&team.configuration().replace("postgres@", "postgres:s3cret@"));
    let mut server = home.up_at_once(&[]);
    let reply = eventually("it answers", || home.reply("GET", "/readyz"));
    let waits = |reply: &Reply| {
        reply.status == 503
            && reply.head.contains("retry-after")
            && reply.body.contains("waits for its database")
    };
    assert!(waits(&reply), "{reply:?}");
    assert_eq!(home.http("GET", "/livez", None).0, 200);
    for (method, path) in [("GET", "/api/v1/containers"), ("POST", "/api/v1/heartbeats")] {
        let reply = home.reply(method, path).unwrap();
        assert!(waits(&reply), "{reply:?}");
    }
    let told = home.run(&["containers"]);
    assert!(told.code != 0 && told.err.contains("waits for its database"), "{told:?}");
    assert!(home.log().contains("waiting for the database") && !home.log().contains("Parhelia is up"));
    assert!(!home.log().contains("s3cret") && !reply.body.contains("s3cret"));
    // A second one is refused as ever: the home is taken.
    let second = home.run(&["up"]);
    assert!(second.err.contains("another server already serves"), "{second:?}");
    assert_eq!(server.has_ended(), None);

    team.postgres.tell("start");
    eventually("it is ready", || (home.http("GET", "/readyz", None).0 == 200).then_some(()));
    until_leads(&home);
    let id = ask(&home, "process", &["sleep", "1000"]);
    reaches(&home, &id, "running");
    assert!(home.log().contains("the database is there") && home.log().contains("Parhelia is up"));
    home.ok(&["down"]);
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_server_that_waits_for_its_database_can_be_stopped() {
    let team = Team::new();
    team.postgres.tell("stop");
    team.until_down();
    for by_signal in [false, true] {
        let home = team.home();
        let mut server = home.up_at_once(&[]);
        eventually("it answers", || home.reply("GET", "/readyz"));
        if by_signal {
            signal(&mut server, Signal::TERM);
        } else {
            home.ok(&["down"]);
        }
        assert_eq!(server.wait(), 0, "{}", home.log());
        assert!(!home.path().join("parhelia.sock").exists());
    }
}

#[test]
fn a_database_that_does_not_let_us_in_ends_the_start_at_once() {
    let team = Team::new();
    team.postgres.sql("postgres", "CREATE ROLE ann LOGIN PASSWORD 'right'");
    team.postgres.demand_passwords();
    let as_ann = |password: &str, database: &str| {
        team.postgres.url(database).replace("postgres@", &format!("ann:{password}@"))
    };
    for (url, word) in [
        (as_ann("s3cret", "postgres"), "password authentication failed"),
        (as_ann("right", "nowhere"), "nowhere"),
        ("mysql://ann:s3cret@h/x".to_owned(), "database"),
    ] {
        let home = Home::new();
        let said = home.command(&["up"]).env("PARHELIA_DATABASE_URL", &url).output().unwrap();
        let all =
            format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(!said.status.success() && all.contains(word) && !all.contains("s3cret"), "{all}");
        assert!(!home.path().join("parhelia.sock").exists());
    }
}
