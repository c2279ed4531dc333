//! The store on PostgreSQL beside the same statements on a bare connection. It uses the server that it is given, in
//! a schema of its own, or starts a private one from the machine's own binaries. It never uses the database of
//! a home: measuring is a load that nobody should find on a shared database.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use parhelia_core::event::{EventType, NewEvent, Source};
use parhelia_core::heartbeat::Sample;
use parhelia_store::postgres::bare_connection;
use parhelia_store::{EventFilter, Store, sql};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::store::{id, intent, moment, sample};
use super::{Ground, Row, median, percentile, stopwatch};

const CALLERS: u64 = 64;
const BATCH: u64 = 100;
const FLEET: u64 = 1000;
/// Heartbeats of one transaction of the bare loop: one request's, and as many as the store gathers at most.
const TOGETHER: [u64; 2] = [BATCH, 4000];
const NOW: &str = "2026-01-21T00:00:00.000Z";
const BINARIES: &str = "/usr/lib/postgresql";

type Fallible<T> = Result<T, String>;

pub(super) fn text(e: impl std::error::Error) -> String {
    // The driver keeps what the server said in its source.
    e.source().map_or_else(|| e.to_string(), |source| format!("{e}: {source}"))
}

pub(super) async fn measure(ground: &Ground, given: Option<&str>) -> Fallible<Vec<Row>> {
    let place = match Place::begin(ground, given, "postgres").await? {
        Ok(place) => place,
        Err(unmeasured) => return Ok(vec![unmeasured]),
    };
    let rows = rows(ground, &place.url).await;
    place.end().await?;
    rows
}

/// A schema of our own, on the server that we were given or on a private one.
pub(super) struct Place {
    pub(super) url: String,
    admin: Client,
    schema: String,
    _private: Option<Private>,
}

impl Place {
    /// The inner error is the row that says why nothing can be measured.
    pub(super) async fn begin(
        ground: &Ground,
        given: Option<&str>,
        part: &str,
    ) -> Fallible<Result<Self, Row>> {
        let (url, private) = match given {
            Some(url) => (url.to_owned(), None),
            None => match Private::start(&ground.dir.join(part)) {
                Ok(private) => (private.url(), Some(private)),
                Err(why) => {
                    let name = format!("PostgreSQL: not measured ({why}; or give --postgres URL)");
                    return Ok(Err(Row::plain(&name, 0.0, "")));
                }
            },
        };
        let (admin, messages) = bare_connection(&url).await.map_err(|e| e.to_string())?;
        tokio::spawn(messages.for_each(async |_| {}));
        // As unique as the directory of this run.
        let run =
            ground.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().replace('-', "_"));
        let run = format!("{run}_{part}");
        let schema = format!("\"{run}\"");
        admin.batch_execute(&format!("CREATE SCHEMA {schema}")).await.map_err(text)?;
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}options=-csearch_path%3D{run}");
        Ok(Ok(Self { url, admin, schema, _private: private }))
    }

    pub(super) async fn end(self) -> Fallible<()> {
        self.admin.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await.map_err(text)
    }
}

async fn rows(ground: &Ground, url: &str) -> Fallible<Vec<Row>> {
    let told = |e: parhelia_store::StoreError| e.to_string();
    let store = Store::open_postgres(url).await.map_err(told)?;
    let other = Store::open_postgres(url).await.map_err(told)?;
    for n in 0..FLEET {
        store.register(intent(n, "process"), vec![], moment()).await.map_err(told)?;
    }
    let (client, messages) = bare_connection(url).await.map_err(told)?;
    tokio::spawn(messages.for_each(async |_| {}));
    let durability = "SELECT current_setting('synchronous_commit') || ', fsync ' || current_setting('fsync')";
    let durability: String = client.query_one(durability, &[]).await.map_err(text)?.get(0);
    // In turns, and the median of each: other work on the machine then hits both alike.
    let (mut bare, mut through) = ([vec![], vec![]], vec![]);
    for _ in 0..ground.rounds {
        for (figures, together) in bare.iter_mut().zip(TOGETHER) {
            figures.push(raw_heartbeats(&client, ground, together).await?);
        }
        through.push(through_store(&store, ground).await?);
    }
    let bare = bare.map(median);
    let limit = bare.into_iter().fold(0.0, f64::max);
    let name = format!("heartbeats through the store, batches of 100, PostgreSQL ({durability})");
    let reason = format!(
        "the bare loop does {:.0} /s with {} to a transaction, and {:.0} /s with {}",
        bare[0], TOGETHER[0], bare[1], TOGETHER[1]
    );
    let mut rows = vec![
        Row::share(&name, median(through), "/s", limit, "same statements, one loop", 0.7).because(reason),
    ];
    let mut bare = raw_tail(url, ground.rounds).await?;
    let mut seen = tail(&store, &other, ground.rounds).await?;
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        rows.push(Row {
            limit: Some(percentile(&mut bare, share)),
            limit_is: "bare NOTIFY and SELECT",
            ..Row::plain(
                &format!("event committed to seen in another server's tail, {word}, PostgreSQL"),
                percentile(&mut seen, share),
                "ms",
            )
        });
    }
    store.close().await.map_err(told)?;
    other.close().await.map_err(told)?;
    Ok(rows)
}

/// One connection, one transaction after the other, with the very statements that the store runs.
async fn raw_heartbeats(client: &Client, ground: &Ground, together: u64) -> Fallible<f64> {
    let batch = |sql: &'static sql::Sql| sql.batch.unwrap_or(sql.text);
    let touch = client.prepare(batch(&sql::HEARTBEAT_TOUCH)).await.map_err(text)?;
    let insert = client.prepare(batch(&sql::HEARTBEAT_INSERT)).await.map_err(text)?;
    let workers = client.prepare(batch(&sql::HEARTBEAT_WORKERS)).await.map_err(text)?;
    let n = together as usize;
    let (at, cpu, memory) = (vec![NOW; n], vec![Some(12.5_f64); n], vec![Some(512_i64); n]);
    let (uptime, no_real, no_int) = (vec![Some(60_i64); n], vec![None::<f64>; n], vec![None::<i64>; n]);
    let metadata = vec!["{}"; n];
    let (began, mut done) = (stopwatch(), 0_u64);
    while began.elapsed() < ground.span {
        let ids: Vec<String> = (0..together).map(|i| id((done + i) % FLEET).to_string()).collect();
        let all = async {
            client.batch_execute("BEGIN").await?;
            client.query(&touch, &[&ids, &at, &cpu, &no_real, &memory, &no_real, &uptime]).await?;
            let rest: [&(dyn tokio_postgres::types::ToSql + Sync); 10] =
                [&ids, &at, &cpu, &no_real, &memory, &no_real, &uptime, &no_int, &no_int, &metadata];
            client.execute(&insert, &rest).await?;
            client.execute(&workers, &[&ids, &at]).await?;
            client.batch_execute("COMMIT").await
        };
        all.await.map_err(text)?;
        done += together;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

async fn through_store(store: &Store, ground: &Ground) -> Fallible<f64> {
    let counted = Arc::new(AtomicU64::new(0));
    let (began, span) = (stopwatch(), ground.span);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..CALLERS {
        let (store, counted) = (store.clone(), counted.clone());
        tasks.spawn(async move {
            // Over the whole fleet, as in the bare loop: a row that is hit twice in a transaction is cheaper.
            let samples: Vec<Sample> = (0..BATCH).map(|i| sample((n * BATCH + i) % FLEET)).collect();
            while began.elapsed() < span {
                let known = store.heartbeats(&samples, moment()).await.map_err(|e| e.to_string())?;
                counted.fetch_add(known.len() as u64, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(text)??;
    }
    Ok(counted.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

/// From the moment a write is acknowledged here until a reader of the tail has it there, in milliseconds.
async fn tail(here: &Store, there: &Store, rounds: usize) -> Fallible<Vec<f64>> {
    let told = |e: parhelia_store::StoreError| e.to_string();
    let mut waits = Vec::new();
    for _ in 0..40 * rounds {
        let mut commits = there.subscribe_commits();
        let after = there.last_event_id().await.map_err(told)?;
        let reader = there.clone();
        let reading = tokio::spawn(async move {
            let filter = EventFilter { after_id: Some(after), limit: Some(1), ..EventFilter::default() };
            loop {
                commits.borrow_and_update();
                if !reader.events(&filter).await.map_err(told)?.is_empty() {
                    return Ok::<_, String>(stopwatch());
                }
                commits.changed().await.map_err(text)?;
            }
        });
        let event = NewEvent::new(EventType::ServerStarted, Source::System, "measuring");
        here.append_events(vec![event], moment()).await.map_err(told)?;
        let committed = stopwatch();
        let seen = reading.await.map_err(text)??;
        waits.push(seen.saturating_duration_since(committed).as_secs_f64() * 1000.0);
    }
    Ok(waits)
}

/// The least that it can take: a notification after the commit, and one question when it comes.
async fn raw_tail(url: &str, rounds: usize) -> Fallible<Vec<f64>> {
    let told = |e: parhelia_store::StoreError| e.to_string();
    let (writer, messages) = bare_connection(url).await.map_err(told)?;
    tokio::spawn(messages.for_each(async |_| {}));
    let (reader, mut messages) = bare_connection(url).await.map_err(told)?;
    let (heard, mut news) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            if matches!(message, AsyncMessage::Notification(_)) && heard.send(()).await.is_err() {
                return;
            }
        }
    });
    reader.batch_execute("LISTEN bench").await.map_err(text)?;
    let notify = writer.prepare("SELECT pg_notify('bench', 'event 1')").await.map_err(text)?;
    let look = reader.prepare(sql::LAST_EVENT.postgres()).await.map_err(text)?;
    let mut waits = Vec::new();
    for _ in 0..40 * rounds {
        let committed = stopwatch();
        writer.execute(&notify, &[]).await.map_err(text)?;
        news.recv().await.ok_or("the listening connection ended")?;
        reader.query_one(&look, &[]).await.map_err(text)?;
        waits.push(committed.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(waits)
}

/// A PostgreSQL of our own with its default durability, on a unix socket; ended and removed with this.
struct Private {
    dir: PathBuf,
    bin: PathBuf,
    server: Child,
}

impl Private {
    fn start(dir: &Path) -> Fallible<Self> {
        let installed = std::fs::read_dir(BINARIES).map_err(|_| format!("there is no {BINARIES}"))?;
        let bin = installed
            .flatten()
            .map(|version| version.path().join("bin"))
            .filter(|bin| bin.join("initdb").exists())
            .max()
            .ok_or_else(|| format!("there is no server in {BINARIES}"))?;
        let io = |e: std::io::Error| e.to_string();
        std::fs::create_dir_all(dir).map_err(io)?;
        if is_root() {
            // PostgreSQL refuses to be run by root.
            let owner = |flag| Command::new("id").args([flag, "postgres"]).output().map_err(io);
            let number = |said: Output| String::from_utf8_lossy(&said.stdout).trim().parse::<u32>().ok();
            let (user, group) = (number(owner("-u")?), number(owner("-g")?));
            let user = user.ok_or("we are root, and there is no user postgres to run it as")?;
            std::os::unix::fs::chown(dir, Some(user), group).map_err(io)?;
        }
        let made = unprivileged(&bin.join("initdb"))
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"])
            .arg(dir.join("data"))
            .output()
            .map_err(io)?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let server = unprivileged(&bin.join("postgres"))
            .args(["-c", "listen_addresses=", "-D"])
            .arg(dir.join("data"))
            .arg("-k")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(io)?;
        let mut started = Self { dir: dir.to_owned(), bin, server };
        for _ in 0..300 {
            let ready = Command::new(started.bin.join("pg_isready")).arg("-q").arg("-h").arg(dir).status();
            if ready.is_ok_and(|status| status.success()) {
                return Ok(started);
            }
            if matches!(started.server.try_wait(), Ok(Some(_))) {
                return Err("the private server ended at once".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("the private server did not get ready".into())
    }

    fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.dir.display().to_string().replace('/', "%2F"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let mut stop = unprivileged(&self.bin.join("pg_ctl"));
        let told = stop.args(["stop", "-s", "-m", "immediate", "-D"]).arg(self.dir.join("data")).status();
        if !told.is_ok_and(|status| status.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Ends with us, however we end.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "QUIT"]);
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    }
    command.arg(program).current_dir("/").stdin(Stdio::null());
    command
}
