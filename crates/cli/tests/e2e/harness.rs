//! A home, a server in it, and the means to ask, to kill and to wait for a condition.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn parhelia() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_parhelia"))
}

/// Polls until `condition` gives something; panics with `what` when it never does.
#[allow(clippy::disallowed_methods, reason = "a test waits on the real clock")]
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {}s in vain: {what}", PATIENCE.as_secs());
        sleep(Duration::from_millis(20));
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// A `PARHELIA_HOME` of its own.
#[derive(Debug)]
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with_config("")
    }

    pub(crate) fn with_config(config: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("ph").tempdir().unwrap();
        let home = Self { dir };
        home.configure(config);
        home
    }

    pub(crate) fn configure(&self, config: &str) {
        std::fs::write(self.path().join("parhelia.toml"), config).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(&parhelia(), args)
    }

    fn program(&self, build: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(build);
        command.args(args).env("PARHELIA_HOME", self.path()).env("NO_COLOR", "1").stdin(Stdio::null());
        for name in ["PARHELIA_URL", "PARHELIA_TOKEN", "PARHELIA_CONFIG", "PARHELIA_LOG"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Said {
        self.command(args).output().unwrap().into()
    }

    /// Runs a command that must succeed, and gives its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{args:?} failed: {said:?}");
        said.out
    }

    /// Runs a command with `-o json` that must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?} gave no JSON ({e}): {out}"))
    }

    /// Starts a sandbox and gives its container id.
    pub(crate) fn start(&self, options: &[&str], command: &[&str]) -> String {
        let args = [&["containers", "run", "-o", "name"], options, &["--"], command].concat();
        self.ok(&args).trim().to_owned()
    }

    pub(crate) fn container(&self, id: &str) -> Value {
        self.json(&["containers", "show", id])
    }

    /// Waits until a container's `field` is `value`.
    pub(crate) fn until(&self, id: &str, field: &str, value: &str) -> Value {
        eventually(&format!("{id} has {field} = {value}"), || {
            Some(self.container(id)).filter(|c| c[field] == value)
        })
    }

    /// The types of a container's events, oldest first.
    pub(crate) fn events_of(&self, id: &str) -> Vec<String> {
        let mut events: Vec<(i64, String)> = self
            .json(&["containers", "events", id, "--limit", "1000"])
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["id"].as_i64().unwrap(), e["event_type"].as_str().unwrap().to_owned()))
            .collect();
        events.sort();
        events.into_iter().map(|(_, kind)| kind).collect()
    }

    /// `parhelia up` in the foreground of its own process, ready.
    pub(crate) fn up(&self, args: &[&str]) -> Server {
        self.up_with(&parhelia(), args)
    }

    /// The same with another build.
    pub(crate) fn up_with(&self, build: &Path, args: &[&str]) -> Server {
        self.up_where(build, args, |_| {})
    }

    /// The same in surroundings of its own.
    pub(crate) fn up_where(&self, build: &Path, args: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
        let mut server = self.launch(build, args, prepare);
        eventually("the server is ready", || {
            if let Some(code) = server.has_ended() {
                panic!("the server has ended with {code}: {}", self.log());
            }
            self.try_http("GET", "/readyz", None).filter(|(status, _)| *status == 200)
        });
        server
    }

    /// Without waiting for it.
    pub(crate) fn up_at_once(&self, args: &[&str]) -> Server {
        self.launch(&parhelia(), args, |_| {})
    }

    fn launch(&self, build: &Path, args: &[&str], prepare: impl FnOnce(&mut Command)) -> Server {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.path().join("up.log")).unwrap();
        let mut command = self.program(build, &[&["up"], args].concat());
        prepare(&mut command);
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Server { child }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("up.log")).unwrap_or_default()
    }

    /// One HTTP request over the home's socket: status and body. Panics when nobody answers.
    pub(crate) fn http(&self, method: &str, path: &str, body: Option<&str>) -> (u16, String) {
        self.try_http(method, path, body).expect("the server answers")
    }

    /// The same with a JSON answer.
    pub(crate) fn api(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|b| b.to_string());
        let (status, text) = self.http(method, path, body.as_deref());
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(crate) fn try_http(&self, method: &str, path: &str, body: Option<&str>) -> Option<(u16, String)> {
        let stream = UnixStream::connect(self.path().join("parhelia.sock")).ok()?;
        // A server that never answers fails the test, instead of holding it for ever.
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        exchange(stream, method, path, body, &[])
    }

    /// Asks a server that may be frozen: it is not waited for.
    pub(crate) fn post_briefly(&self, path: &str, body: &str) -> Option<(u16, String)> {
        let stream = UnixStream::connect(self.path().join("parhelia.sock")).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        exchange(stream, "POST", path, Some(body), &[])
    }

    /// A whole answer, with its head; `None` when nobody answers.
    pub(crate) fn reply(&self, method: &str, path: &str) -> Option<Reply> {
        let stream = UnixStream::connect(self.path().join("parhelia.sock")).ok()?;
        exchange_whole(stream, method, path, None, &[])
    }

    /// The store, from outside, as a person with the sqlite3 shell would open it.
    pub(crate) fn sqlite(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(self.path().join("parhelia.sqlite3")).unwrap();
        db.busy_timeout(PATIENCE).unwrap();
        db
    }

    /// One number from the database of this home.
    pub(crate) fn sqlite_count(&self, sql: &str) -> i64 {
        self.sqlite().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn job_dir(&self, container: &Value) -> PathBuf {
        self.path().join("jobs").join(container["sandbox_id"].as_str().expect("it has a sandbox"))
    }
}

/// One HTTP/1.1 request on a fresh connection.
pub(crate) fn exchange(
    stream: impl Read + Write,
    method: &str,
    path: &str,
    body: Option<&str>,
    headers: &[&str],
) -> Option<(u16, String)> {
    exchange_whole(stream, method, path, body, headers).map(|reply| (reply.status, reply.body))
}

/// An answer with its head in lower case.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The same, for tests that look at the headers.
pub(crate) fn exchange_whole(
    stream: impl Read + Write,
    method: &str,
    path: &str,
    body: Option<&str>,
    headers: &[&str],
) -> Option<Reply> {
    let body = body.unwrap_or("");
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    if !body.is_empty() && !headers.iter().any(|h| h.to_ascii_lowercase().starts_with("content-type")) {
        head.push_str("content-type: application/json\r\n");
    }
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    say(stream, &format!("{head}\r\n{body}"))
}

/// A request as it is written here, and whatever is answered.
pub(crate) fn say(mut stream: impl Read + Write, request: &str) -> Option<Reply> {
    // A server that refuses early may close before it has read everything; its answer still counts.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    Some(Reply { status, head, body: if chunked { unchunk(body) } else { body.to_owned() } })
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

impl Drop for Home {
    /// Ends whatever the test left: a server, every supervisor, and everything that they started. A stop file
    /// would not do: the directory is gone before anybody reads it.
    fn drop(&mut self) {
        let mut marks = vec![format!("PARHELIA_HOME={}", self.path().display())];
        for entry in std::fs::read_dir(self.path().join("jobs")).into_iter().flatten().flatten() {
            marks.push(format!("PARHELIA_SUPERVISES={}", entry.file_name().to_string_lossy()));
        }
        // Again for what was being started during the look; bounded, because a drop must end.
        for _ in 0..50 {
            let left = processes_with_any(&marks);
            if left.is_empty() {
                return;
            }
            for one in left {
                let _ = rustix::process::kill_process(one, rustix::process::Signal::KILL);
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// A server process. Killed without mercy when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// SIGKILL, and wait for the death.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(crate) fn has_ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|s| s.code().unwrap_or(-1))
    }

    /// The process, for signals other than SIGKILL.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Live processes whose environment has `variable`: what the kernel shows, not what anybody recorded.
pub(crate) fn alive_with(variable: &str) -> usize {
    let wanted = variable.as_bytes();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|v| v == wanted)
        })
        .count()
}

impl Home {
    /// A variable that nothing else on this machine has, to know what was started here by its environment.
    pub(crate) fn mark(&self) -> String {
        format!("MARK_{}", self.path().file_name().unwrap().to_string_lossy().replace('.', "_"))
    }
}

/// What the server itself says, without a command in between: cheap enough to be polled.
impl Home {
    /// One container as the API shows it.
    pub(crate) fn seen(&self, id: &str) -> Value {
        let (status, view) = self.api("GET", &format!("/api/v1/containers/{id}"), None);
        assert_eq!(status, 200, "{id}: {view}");
        view
    }

    /// Waits until the API shows `field` = `value`.
    pub(crate) fn until_seen(&self, id: &str, field: &str, value: &str) -> Value {
        eventually(&format!("the API shows {id} with {field} = {value}"), || {
            Some(self.seen(id)).filter(|c| c[field] == value)
        })
    }

    /// All containers, the ended ones too.
    pub(crate) fn all_seen(&self) -> Vec<Value> {
        self.api("GET", "/api/v1/containers?all=true", None).1["containers"].as_array().unwrap().clone()
    }

    /// Every event of this type, oldest first.
    pub(crate) fn told(&self, kind: &str) -> Vec<Value> {
        let path = format!("/api/v1/events?type={kind}&order=asc&limit=1000");
        self.api("GET", &path, None).1["events"].as_array().unwrap().clone()
    }

    /// A whole pass over every provider, begun after this call.
    pub(crate) fn reconcile(&self) -> Value {
        let (status, report) = self.api("POST", "/api/v1/reconciler/run", None);
        assert_eq!(status, 200, "{report}");
        report
    }

    pub(crate) fn instance_id(&self) -> String {
        self.api("GET", "/api/v1/server", None).1["instance_id"].as_str().unwrap().to_owned()
    }
}

/// The live processes whose environment has `variable`, by the numbers that they have at this moment.
pub(crate) fn processes_with(variable: &str) -> Vec<rustix::process::Pid> {
    processes_with_any(&[variable.to_owned()])
}

fn processes_with_any(variables: &[String]) -> Vec<rustix::process::Pid> {
    let wanted = |entry: &[u8]| variables.iter().any(|v| v.as_bytes() == entry);
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(wanted)
        })
        .filter_map(|entry| rustix::process::Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Signals the one supervisor of a sandbox.
pub(crate) fn signal_supervisor(sandbox_id: &str, signal: rustix::process::Signal) {
    // For a moment, while it starts its command, there are two that look alike.
    let supervisor = eventually(&format!("{sandbox_id} has one supervisor"), || {
        let found = processes_with(&format!("PARHELIA_SUPERVISES={sandbox_id}"));
        if let [supervisor] = found[..] { Some(supervisor) } else { None }
    });
    rustix::process::kill_process(supervisor, signal).unwrap();
}

/// Stops the one supervisor of a sandbox in the middle of whatever it does, and waits until each of its threads has
/// stopped: one that the kernel holds finishes its write first.
pub(crate) fn freeze_supervisor(sandbox_id: &str) {
    signal_supervisor(sandbox_id, rustix::process::Signal::STOP);
    let [supervisor] = processes_with(&format!("PARHELIA_SUPERVISES={sandbox_id}"))[..] else {
        panic!("{sandbox_id} has no supervisor any more")
    };
    let tasks = format!("/proc/{}/task", supervisor.as_raw_nonzero());
    let stopped = |stat: String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim().starts_with('T'));
    eventually("every thread has stopped", || {
        let threads = std::fs::read_dir(&tasks).unwrap().flatten();
        let states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        states.into_iter().all(stopped).then_some(())
    });
}

/// Exchanges a file at once: nobody reads half of it.
pub(crate) fn put(path: &Path, content: &str) {
    let aside = path.with_extension("test");
    std::fs::write(&aside, content).unwrap();
    std::fs::rename(aside, path).unwrap();
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} is no text in {value}"))
}

/// Sends a signal to the one process whose environment has `variable`.
pub(crate) fn signal_the_one_with(variable: &str, signal: rustix::process::Signal) {
    let found = eventually(&format!("one process has {variable}"), || {
        Some(processes_with(variable)).filter(|found| found.len() == 1)
    });
    rustix::process::kill_process(found[0], signal).unwrap();
}

/// The wall clock, shifted.
#[allow(clippy::disallowed_methods, reason = "a test reads the real clock")]
pub(crate) fn moment(shift_seconds: i64) -> jiff::Timestamp {
    parhelia_core::time::plus_seconds(jiff::Timestamp::now(), shift_seconds)
}

/// The same, as the store writes it.
pub(crate) fn stored_moment(shift_seconds: i64) -> String {
    parhelia_core::time::to_text(moment(shift_seconds))
}

/// A fake provider's world in a file beside the home, for `fake_world`.
#[derive(Debug)]
pub(crate) struct FakeWorld {
    dir: tempfile::TempDir,
}

impl FakeWorld {
    pub(crate) fn new() -> Self {
        let world = Self { dir: tempfile::Builder::new().prefix("pw").tempdir().unwrap() };
        world.write(&serde_json::json!({ "identity": "engine-1", "create_settles_seconds": 1 }));
        world
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("world.json")
    }

    /// The line for the configuration; it must stand before any table.
    pub(crate) fn line(&self) -> String {
        format!("fake_world = '{}'\n", self.path().display())
    }

    pub(crate) fn read(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path()).unwrap()).unwrap()
    }

    pub(crate) fn write(&self, world: &Value) {
        let temp = self.dir.path().join("world.new");
        std::fs::write(&temp, world.to_string()).unwrap();
        std::fs::rename(&temp, self.path()).unwrap();
    }

    /// Changes it under the lock that the provider takes for its own changes: neither loses the other's.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        let lock = std::fs::File::create(self.path().with_extension("lock")).unwrap();
        lock.lock().unwrap();
        let mut world = self.read();
        change(&mut world);
        self.write(&world);
    }

    /// Adds a running sandbox that carries `instance`'s tag.
    pub(crate) fn add(&self, sandbox: &str, instance: &str, container: &str, age_seconds: i64) {
        let born = moment(-age_seconds).to_string();
        self.change(|world| {
            let all = world["sandboxes"].as_array().cloned().unwrap_or_default();
            let one = serde_json::json!({
                "sandbox_id": sandbox, "tags": { "instance": instance, "container": container },
                "created_at": born, "visible_at": born, "command": ["agent"],
            });
            world["sandboxes"] = [all, vec![one]].concat().into();
        });
    }
}

/// The directory of the programs of a Python environment with the clients that we did not write
/// (`tests/e2e/requirements.txt`), made at the first use.
pub(crate) fn python() -> PathBuf {
    let wanted = include_str!("requirements.txt");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let done = dir.join("installed.txt");
    std::fs::create_dir_all(&dir).unwrap();
    let lock = std::fs::File::create(dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return dir.join("bin");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/requirements.txt");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(dir.join("env")));
    run(Command::new(dir.join("env/bin/pip")).args(["install", "--quiet", "--requirement"]).arg(file));
    let _ = std::fs::remove_file(dir.join("bin"));
    std::os::unix::fs::symlink(dir.join("env/bin"), dir.join("bin")).unwrap();
    std::fs::write(done, wanted).unwrap();
    dir.join("bin")
}
