//! A whole server: how soon it answers, what it uses when idle, how long a big list takes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use parhelia_core::api::ServerInfo;
use parhelia_store::Store;

use super::store::{intent, moment};
use super::{Ground, Row, median, millis, stopwatch};

pub(super) async fn measure(ground: &Ground, quick: bool) -> Result<Vec<Row>, String> {
    let home = ground.dir.join("idle");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let bare = bare_start(&home).await?;
    let began = stopwatch();
    let server = Child::start(&home, &[]).await?;
    let ready = millis(began);
    // It settles, and then nothing happens.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let span = Duration::from_secs(if quick { 1 } else { 10 });
    let (cpu_before, watched) = (server.cpu_seconds(), stopwatch());
    tokio::time::sleep(span).await;
    let cpu = (server.cpu_seconds() - cpu_before) / watched.elapsed().as_secs_f64() * 100.0;
    let resident = memory_mb(&server.proc_name(), "VmRSS");
    let own = memory_mb(&server.proc_name(), "RssAnon");
    drop(server);
    let binary = std::env::current_exe().and_then(std::fs::metadata).map_err(|e| e.to_string())?.len();
    Ok(vec![
        Row::below("start to ready", ready, "ms", 300.0).limited(bare, "'parhelia version'"),
        Row::below("idle server, resident memory", resident, "MB", 30.0)
            .because(format!("{own:.1} MB are its own, the rest are pages of its program and of libraries")),
        Row::below("idle server, CPU", cpu, "%", 0.5),
        Row::plain("binary", binary as f64 / 1e6, "MB"),
        big_list(ground, quick).await?,
    ])
}

async fn big_list(ground: &Ground, quick: bool) -> Result<Row, String> {
    let size: u64 = if quick { 500 } else { 10_000 };
    let home = ground.dir.join("list");
    std::fs::create_dir_all(&home).map_err(|e| e.to_string())?;
    let store = Store::open_sqlite(&home.join("parhelia.sqlite3")).map_err(|e| e.to_string())?;
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..size {
        let store = store.clone();
        writes.spawn(async move { store.register(intent(n, "bench"), vec![], moment()).await });
    }
    while let Some(done) = writes.join_next().await {
        done.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    }
    store.close().await.map_err(|e| e.to_string())?;
    let _server = Child::start(&home, &[]).await?;
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = stopwatch();
        let listed = command(&home, &["containers"])?.output().await.map_err(|e| e.to_string())?;
        took.push(millis(began));
        // The table has a head, and lines below it.
        let lines = String::from_utf8_lossy(&listed.stdout).lines().filter(|l| l.starts_with("c-")).count();
        if lines as u64 != size {
            return Err(format!("{lines} of {size} containers were listed"));
        }
    }
    Ok(Row::plain(&format!("'parhelia containers' on {size} rows, wall"), median(took), "ms"))
}

/// What it takes to start the program at all.
async fn bare_start(home: &Path) -> Result<f64, String> {
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = stopwatch();
        let said = command(home, &["version"])?.output().await.map_err(|e| e.to_string())?;
        took.push(millis(began));
        if !said.status.success() {
            return Err("'parhelia version' did not succeed".to_owned());
        }
    }
    Ok(median(took))
}

pub(super) fn command(home: &Path, args: &[&str]) -> Result<tokio::process::Command, String> {
    let mut command = tokio::process::Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(args).env("PARHELIA_HOME", home).stdin(Stdio::null()).stderr(Stdio::null());
    for variable in ["PARHELIA_URL", "PARHELIA_CONFIG", "PARHELIA_LOG"] {
        command.env_remove(variable);
    }
    Ok(command)
}

/// A server of our own, ended with this.
pub(super) struct Child {
    home: PathBuf,
    process: tokio::process::Child,
}

impl Child {
    pub(super) async fn start(home: &Path, args: &[&str]) -> Result<Self, String> {
        let mut command = command(home, &[&["up"], args].concat())?;
        let process = command.stdout(Stdio::null()).kill_on_drop(true).spawn().map_err(|e| e.to_string())?;
        let child = Self { home: home.to_owned(), process };
        for _ in 0..10_000 {
            if let Ok(answer) = child.client()?.get("http://localhost/readyz").send().await
                && answer.status().is_success()
            {
                return Ok(child);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("the server was not ready in time".into())
    }

    pub(super) fn client(&self) -> Result<reqwest::Client, String> {
        reqwest::Client::builder()
            .unix_socket(self.home.join("parhelia.sock"))
            .build()
            .map_err(|e| e.to_string())
    }

    /// SIGKILL, and its death awaited.
    pub(super) async fn kill(mut self) -> Result<(), String> {
        self.process.kill().await.map_err(|e| e.to_string())
    }

    pub(super) async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let request = self.client()?.get(format!("http://localhost{path}"));
        let answer = request.send().await.map_err(|e| e.to_string())?;
        answer.error_for_status().map_err(|e| e.to_string())?.json().await.map_err(|e| e.to_string())
    }

    pub(super) async fn post(&self, path: &str, body: &serde_json::Value) -> Result<(), String> {
        let request = self.client()?.post(format!("http://localhost{path}")).json(body);
        let answer = request.send().await.map_err(|e| e.to_string())?;
        answer.error_for_status().map(drop).map_err(|e| e.to_string())
    }

    /// Its TCP address and the token for it.
    pub(super) async fn tcp(&mut self) -> Result<(String, String), String> {
        let answer =
            self.client()?.get("http://localhost/api/v1/server").send().await.map_err(|e| e.to_string())?;
        let info: ServerInfo = answer.json().await.map_err(|e| e.to_string())?;
        let token = std::fs::read_to_string(self.home.join("admin.token")).map_err(|e| e.to_string())?;
        Ok((info.listen.ok_or("no TCP address")?, token.trim().to_owned()))
    }

    pub(super) fn proc_name(&self) -> String {
        proc_name(&self.process)
    }

    /// What it has caused to be written to disks.
    pub(super) fn written_bytes(&self) -> f64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.proc_name())).unwrap_or_default();
        let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        bytes.unwrap_or(0.0)
    }

    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(Path::new("/proc").join(self.proc_name()))
    }

    /// Of these, what the one thread took that writes to the database.
    pub(super) fn writer_cpu_seconds(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.proc_name())).into_iter().flatten();
        let writes = |thread: &PathBuf| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "store-writer")
        };
        threads.filter_map(|thread| Some(thread.ok()?.path())).filter(writes).map(cpu_seconds).sum()
    }
}

/// Its directory under `/proc`. The process is our own child and alive: nothing is stored or compared.
#[allow(clippy::disallowed_methods, reason = "a live child of ours, named to the kernel only")]
pub(super) fn proc_name(process: &tokio::process::Child) -> String {
    process.id().map_or_else(|| "self".to_owned(), |n| n.to_string())
}

/// What the process, or thread, of this directory of `/proc` has taken of the processors.
pub(super) fn cpu_seconds(of: PathBuf) -> f64 {
    let stat = std::fs::read_to_string(of.join("stat")).unwrap_or_default();
    // utime and stime are the 12th and 13th fields behind the parenthesised name, in ticks.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = behind.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A figure of `/proc/{name}/status`, in MB.
pub(super) fn memory_mb(name: &str, figure: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{name}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(figure)?.strip_prefix(':'));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

/// Lets the kernel's peak (`VmHWM`) begin anew.
pub(super) fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
