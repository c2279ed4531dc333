//! A ClickHouse for tests: the real engine (`chdb`) behind the HTTP interface of a server. It can be slow, refuse, lose
//! its answers, and be killed; what it holds survives that.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{eventually, exchange, put, python};

pub(crate) const USER: &str = "ann";
pub(crate) const PASSWORD: &str = "s3cret";

#[derive(Debug)]
pub(crate) struct Front {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Front {
    /// One that answers.
    pub(crate) fn start() -> Self {
        let mut front = Self::absent();
        front.come();
        front
    }

    /// An address at which nobody is yet.
    pub(crate) fn absent() -> Self {
        let dir = tempfile::Builder::new().prefix("pch").tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { dir, port, child: None }
    }

    pub(crate) fn come(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/clickhouse_front.py");
        let log = std::fs::File::create(self.dir.path().join("front.log")).unwrap();
        let child = Command::new(python().canonicalize().unwrap().join("python"))
            .arg(script)
            .arg(self.data())
            .args([&self.port.to_string(), USER, PASSWORD])
            // Not in our zone: what is shown there does not depend on it.
            .env("TZ", "Asia/Tokyo")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        eventually("ClickHouse answers", || {
            self.exchange("GET", "/ping", None).filter(|(status, _)| *status == 200)
        });
    }

    /// SIGKILL, in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What goes wrong from now on: `delay` (seconds), `lose` (answers to INSERTs), `refuse`.
    pub(crate) fn goes_wrong(&self, how: &Value) {
        put(&self.dir.path().join("data.json"), &how.to_string());
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A `[clickhouse]` that uses it, with more lines.
    pub(crate) fn config(&self, more: &str) -> String {
        format!("[clickhouse]\nurl = '{}'\nuser = '{USER}'\npassword = '{PASSWORD}'\n{more}\n", self.url())
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&str>) -> Option<(u16, String)> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let headers = [format!("X-ClickHouse-User: {USER}"), format!("X-ClickHouse-Key: {PASSWORD}")];
        exchange(stream, method, path, body, &headers.each_ref().map(String::as_str))
    }

    /// What a person's query gives, as objects; `None` when there is no answer, or no such table.
    pub(crate) fn try_rows(&self, database: &str, query: &str) -> Option<Vec<Value>> {
        let path = format!("/?database={database}&default_format=JSONEachRow");
        let (status, answer) = self.exchange("POST", &path, Some(query))?;
        (status == 200).then(|| answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    pub(crate) fn rows(&self, query: &str) -> Vec<Value> {
        self.try_rows("default", query).unwrap_or_else(|| panic!("no answer to {query}"))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.kill();
    }
}
