//! A private Docker engine for one test: its own socket, data and containers, gone with the test. Installs
//! nothing; what is missing makes the test fail and say so.

#![allow(dead_code, reason = "shared by two test binaries, each of which uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// With a shell and the usual commands, and nothing else.
pub(crate) const IMAGE: &str = "ph-busybox:1";
const PATIENCE: Duration = Duration::from_secs(60);
const APPLETS: [&str; 19] = [
    "sh", "sleep", "echo", "cat", "true", "false", "seq", "dd", "tail", "id", "ls", "mkdir", "kill", "stat",
    "env", "printf", "trap", "wc", "head",
];

#[derive(Debug)]
pub(crate) struct DockerEngine {
    dir: tempfile::TempDir,
    /// The data of the engine at this moment; another name is another engine.
    data: String,
    options: Vec<String>,
    daemon: Option<Child>,
}

impl DockerEngine {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more options for the daemon.
    pub(crate) fn start_with(options: &[String]) -> Self {
        for (program, package) in
            [("dockerd", "docker.io"), ("docker", "docker.io"), ("busybox", "busybox-static")]
        {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
            assert!(
                found.status.success(),
                "{program} is missing: apt-get install {package} (scripts/test.sh does)"
            );
        }
        let dir = tempfile::Builder::new().prefix("phd").tempdir().unwrap();
        let mut engine = Self { dir, data: "data".to_owned(), options: options.to_vec(), daemon: None };
        engine.up();
        engine.import();
        engine
    }

    /// On a TCP address where both sides must prove themselves: with a directory of a client's `ca.pem`, `cert.pem`
    /// and `key.pem`, and the address.
    pub(crate) fn start_with_tls() -> (Self, tempfile::TempDir, String) {
        let certificates = tempfile::tempdir().unwrap();
        let script = "
            set -e
            openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
            for who in server:serverAuth client:clientAuth; do
                name=${who%%:*}
                openssl req -newkey rsa:2048 -nodes -subj /CN=$name -keyout $name.key -out $name.csr
                printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=%s\\n' ${who##*:} > $name.ext
                openssl x509 -req -days 2 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile $name.ext -out $name.pem
            done
            cp client.pem cert.pem; cp client.key key.pem";
        let made = Command::new("sh").args(["-c", script]).current_dir(certificates.path()).output().unwrap();
        assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let file = |name: &str| certificates.path().join(name).display().to_string();
        let host = format!("tcp://127.0.0.1:{port}");
        let engine = Self::start_with(&[
            format!("--host={host}"),
            "--tlsverify".to_owned(),
            format!("--tlscacert={}", file("ca.pem")),
            format!("--tlscert={}", file("server.pem")),
            format!("--tlskey={}", file("server.key")),
        ]);
        (engine, certificates, host)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Starts the daemon on the present data, and waits until it answers.
    #[allow(clippy::disallowed_methods, reason = "a test waits on the real clock")]
    pub(crate) fn up(&mut self) {
        let in_dir = |name: &str| self.dir.path().join(name).display().to_string();
        let log = std::fs::File::options().create(true).append(true).open(in_dir("log")).unwrap();
        let daemon = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "TERM",
                "dockerd",
                "--live-restore",
                "--bridge",
                "none",
                "--iptables=false",
            ])
            .args(["--ip6tables=false", "--shutdown-timeout", "1"])
            .args(["--host", &self.host(), "--data-root", &in_dir(&self.data)])
            .args(["--exec-root", &in_dir(&format!("{}-exec", self.data)), "--pidfile", &in_dir("pid")])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        let began = Instant::now();
        while !self.docker(&["info"]).status.success() {
            let log = std::fs::read_to_string(in_dir("log")).unwrap_or_default();
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "dockerd does not start here ({ended:?}):\n{log}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the daemon and leaves its containers running, as `live-restore` promises.
    pub(crate) fn down(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            terminate(&mut daemon);
        }
        let _ = std::fs::remove_file(self.dir.path().join("pid"));
    }

    /// Another engine, with nothing in it, answers on the same socket.
    pub(crate) fn replace(&mut self, data: &str) {
        self.down();
        self.data = data.to_owned();
        self.up();
    }

    /// The engine of before, again.
    pub(crate) fn bring_back(&mut self) {
        self.replace("data");
    }

    pub(crate) fn docker(&self, args: &[&str]) -> Output {
        Command::new("docker").env("DOCKER_HOST", self.host()).args(args).output().unwrap()
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let out = self.docker(args);
        assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// The image, with `files` (from, to) added to it.
    pub(crate) fn import_with(&self, name: &str, files: &[(PathBuf, String)]) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        for dir in ["bin", "tmp", "etc", "run"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        let busybox = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
        let busybox = String::from_utf8(busybox.stdout).unwrap();
        std::fs::copy(busybox.trim(), at("bin/busybox")).unwrap();
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", at("bin").join(applet)).unwrap();
        }
        for (from, to) in files {
            std::fs::create_dir_all(at(to).parent().unwrap()).unwrap();
            std::fs::copy(from, at(to)).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        let mut tar = Command::new("tar")
            .args(["-C", root.path().to_str().unwrap(), "-c", "."])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let import = Command::new("docker")
            .env("DOCKER_HOST", self.host())
            .args(["import", "-", name])
            .stdin(tar.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(tar.wait().unwrap().success() && import.status.success(), "{import:?}");
    }

    fn import(&self) {
        self.import_with(IMAGE, &[]);
    }
}

impl Drop for DockerEngine {
    fn drop(&mut self) {
        for data in ["data", "other"] {
            if !self.dir.path().join(data).exists() {
                continue;
            }
            // Containers outlive a daemon, so each engine that ever was ends its own.
            if self.data != data || self.daemon.is_none() {
                self.replace(data);
            }
            let all = self.docker(&["ps", "-aq"]);
            let all = String::from_utf8_lossy(&all.stdout).into_owned();
            let ids: Vec<&str> = all.split_whitespace().collect();
            if !ids.is_empty() {
                self.docker(&[&["rm", "-fv"], &ids[..]].concat());
            }
        }
        self.down();
        // An engine with `live-restore` leaves its data mounted upon itself.
        for data in ["data", "other"] {
            let _ = Command::new("umount").arg(self.dir.path().join(data)).output();
        }
    }
}

/// Through the handle that we hold: no process id is looked up.
fn terminate(daemon: &mut Child) {
    let pidfd = rustix::process::pidfd_open(
        rustix::process::Pid::from_child(daemon),
        rustix::process::PidfdFlags::empty(),
    );
    if let Ok(pidfd) = pidfd {
        let _ = rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::TERM);
    }
    let _ = daemon.wait();
}
