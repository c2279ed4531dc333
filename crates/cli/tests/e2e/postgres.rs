//! Two servers on one PostgreSQL: who leads, what a follower does, and what happens when the leader or the
//! database dies. Each test has a PostgreSQL of its own.

#[path = "../../../store/tests/common/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "the store's tests use the rest")]
pub(crate) mod server;

use std::path::Path;

use parhelia_providers::fake::World;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, Server, eventually, text};

/// Homes that share a database and the world of a fake provider.
pub(crate) struct Team {
    pub(crate) postgres: server::Server,
    url: String,
    world: tempfile::NamedTempFile,
}

impl Team {
    pub(crate) fn new() -> Self {
        let postgres = server::Server::start();
        let url = postgres.database();
        let world = tempfile::NamedTempFile::new().unwrap();
        World::default().write(world.path()).unwrap();
        Self { postgres, url, world }
    }

    pub(crate) fn home(&self) -> Home {
        Home::with_config(&format!(
            "fake_world = '{}'\n[server]\ndatabase_url = '{}'\n[reconciler]\npoll_interval_seconds = 1\n",
            self.world.path().display(),
            self.url
        ))
    }

    pub(crate) fn database(&self) -> &str {
        self.url.rsplit('/').next().unwrap()
    }

    /// The epochs that were won, in the order of the history.
    fn epochs(&self) -> Vec<i64> {
        let told = self.postgres.sql(
            self.database(),
            "SELECT details::JSON->>'epoch' FROM events WHERE event_type = 'leader_elected' ORDER BY id",
        );
        told.lines().map(|line| line.parse().unwrap()).collect()
    }
}

fn leads(home: &Home) -> bool {
    home.try_http("GET", "/api/v1/server", None)
        .and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok())
        .is_some_and(|info| info["leads"] == true)
}

fn until_leads(home: &Home) {
    eventually("it leads", || leads(home).then_some(()));
}

fn ask(home: &Home, provider: &str, command: &[&str]) -> String {
    let request = json!({ "provider": provider, "command": command });
    let (status, made) = home.api("POST", "/api/v1/containers", Some(request));
    assert_eq!(status, 201, "{made}");
    text(&made, "id").to_owned()
}

fn reaches(home: &Home, id: &str, state: &str) {
    eventually(&format!("{id} is {state}"), || {
        let (_, found) = home.api("GET", &format!("/api/v1/containers/{id}"), None);
        (found["state"] == state).then_some(())
    });
}

fn signal(server: &mut Server, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(server.child()), signal).unwrap();
}

#[test]
fn a_follower_serves_and_what_it_is_asked_is_done_by_whom_it_concerns() {
    let team = Team::new();
    let (one, two) = (team.home(), team.home());
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
    assert_eq!(team.epochs(), [1, 2]);
    // The address with its password is nowhere to be seen, not even in the log.
    assert!(!one.log().contains(&team.url));
}

#[test]
fn a_frozen_leader_is_replaced_and_refused_when_it_wakes_again_and_again() {
    let team = Team::new();
    let homes = [team.home(), team.home()];
    let mut servers = [homes[0].up(&[]), homes[1].up(&[])];
    let mut leader = eventually("one leads", || homes.iter().position(leads));
    for _ in 0..2 {
        signal(&mut servers[leader], Signal::STOP);
        let next = 1 - leader;
        until_leads(&homes[next]);
        let id = ask(&homes[next], "fake", &["agent"]);
        reaches(&homes[next], &id, "running");
        signal(&mut servers[leader], Signal::CONT);
        // Awake, it serves on as a follower.
        eventually("it follows", || {
            let (_, info) = homes[leader].api("GET", "/api/v1/server", None);
            (info["leads"] == false).then_some(())
        });
        assert!(leads(&homes[next]));
        reaches(&homes[leader], &id, "running");
        leader = next;
    }
    let epochs = team.epochs();
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
    let starts = World::change_file(team.world.path(), |world| world.starts.clone()).unwrap();
    assert!(starts.values().all(|times| *times == 1), "{starts:?}");
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
    let stream = std::os::unix::net::UnixStream::connect(home.path().join("parhelia.sock")).unwrap();
    let reply = crate::harness::exchange_whole(stream, "GET", "/api/v1/containers", None, &[]).unwrap();
    assert!(reply.status == 503 && reply.head.contains("retry-after"), "{reply:?}");
    team.postgres.tell("start");
    eventually("it is ready again", || (home.http("GET", "/readyz", None).0 == 200).then_some(()));
    until_leads(&home);
    let (_, found) = home.api("GET", &format!("/api/v1/containers/{id}"), None);
    assert_eq!(found["state"], "running");
    let more = ask(&home, "fake", &["agent"]);
    reaches(&home, &more, "running");
}

#[test]
fn an_address_that_cannot_be_used_is_told_without_its_password() {
    let home = Home::new();
    for url in ["postgres://ann:s3cret@127.0.0.1:1/x", "mysql://ann:s3cret@h/x", "postgres://a:s3cret/b@h/x"]
    {
        let said = home.command(&["up"]).env("PARHELIA_DATABASE_URL", url).output().unwrap();
        let all =
            format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(!said.status.success() && !all.contains("s3cret"), "{all}");
        assert!(all.contains("database"), "{all}");
    }
}
