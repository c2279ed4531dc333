//! A real PostgreSQL for the tests: Debian's binaries, a private directory, a unix socket. A small shell holds it and
//! ends it, with its files, when the test process is gone, however it goes.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are tests

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

const KEEPER: &str = r#"
    # Again while the backends of a killed postmaster are still there: until they are gone it cannot start.
    start() {
        for try in $(seq 100); do
            "$1/postgres" -D "$2/data" -k "$2" >>"$2/log" 2>&1 & pid=$!
            while kill -0 "$pid" 2>/dev/null; do
                [ "$(sed -n '1p;8p' "$2/data/postmaster.pid" 2>/dev/null | tr -d ' \n')" = "${pid}ready" ] && return
                sleep 0.05
            done
            sleep 0.1
        done
    }
    start "$1" "$2"
    while read -r word; do
        case "$word" in
            start) start "$1" "$2" ;;
            stop) kill -QUIT "$pid"; wait "$pid" ;;
            kill) kill -KILL "$pid"; wait "$pid" ;;
        esac
    done
    kill -QUIT "$pid"; wait "$pid"; rm -rf "$2"
"#;

const SETTINGS: &str = "listen_addresses = ''\nfsync = off\nmax_connections = 400\nshared_buffers = 32MB\n\
                        autovacuum = off\nlog_min_messages = warning\ndeadlock_timeout = 200ms\n";

pub struct Server {
    dir: PathBuf,
    bin: PathBuf,
    keeper: Mutex<Child>,
    databases: AtomicU32,
    /// On the loopback address, with TLS; otherwise only its unix socket is open.
    pub tcp: Option<u16>,
}

impl Server {
    /// One for all the tests of this process.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Server::start)
    }

    pub fn start() -> Server {
        Self::start_with(false)
    }

    /// One that also listens on TCP, with a certificate for `localhost` that is its own root (`root()`).
    pub fn start_with_tls() -> Server {
        Self::start_with(true)
    }

    /// The certificate of [`Server::start_with_tls`].
    pub fn root(&self) -> PathBuf {
        self.dir.join("root.pem")
    }

    fn start_with(tls: bool) -> Server {
        let bin = std::fs::read_dir("/usr/lib/postgresql")
            .ok()
            .and_then(|versions| {
                versions.flatten().map(|v| v.path().join("bin")).filter(|b| b.join("initdb").exists()).max()
            })
            .expect("these tests need PostgreSQL: apt-get install postgresql (scripts/test.sh does)");
        let dir = tempfile::Builder::new().prefix("phpg").tempdir_in("/tmp").unwrap().keep();
        let uid = id(&["-u", "postgres"]);
        chown(&dir, Some(uid), Some(id(&["-g", "postgres"]))).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        // A locale that does not sort bytewise: our order must not depend on it.
        let made = as_postgres(&bin.join("initdb"))
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8"])
            .args(["--locale-provider=icu", "--icu-locale=en", "--no-sync", "-D"])
            .arg(dir.join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let conf = dir.join("data/postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(conf).unwrap();
        file.write_all(SETTINGS.as_bytes()).unwrap();
        let tcp = tls.then(|| {
            certify(&dir);
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let more = format!(
                "listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\nssl_cert_file = '{0}/root.pem'\n\
                 ssl_key_file = '{0}/root.key'\n",
                dir.display()
            );
            file.write_all(more.as_bytes()).unwrap();
            port
        });
        let keeper = as_postgres(Path::new("/bin/sh"))
            .args(["-c", KEEPER, "keeper"])
            .arg(&bin)
            .arg(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { dir, bin, keeper: Mutex::new(keeper), databases: AtomicU32::new(0), tcp };
        server.until_up();
        server
    }

    /// A new, empty database; its address.
    pub fn database(&self) -> String {
        let name = format!("w{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.dir.display().to_string().replace('/', "%2F"))
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.port()))
    }

    /// From now on everybody but `postgres` needs a password.
    pub fn demand_passwords(&self) {
        let rules = "local all postgres trust\nlocal all all scram-sha-256\n";
        std::fs::write(self.dir.join("data/pg_hba.conf"), rules).unwrap();
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    fn port(&self) -> String {
        self.tcp.unwrap_or(5432).to_string()
    }

    /// Runs statements with psql; gives what they say.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let said = self.psql(database, text);
        assert!(said.status.success(), "{text}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    fn psql(&self, database: &str, text: &str) -> std::process::Output {
        Command::new(self.bin.join("psql"))
            .args([
                "-X",
                "-q",
                "-At",
                "-U",
                "postgres",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                database,
                "-c",
                text,
                "-h",
            ])
            .arg(&self.dir)
            .args(["-p", &self.port()])
            .output()
            .unwrap()
    }

    /// `kill` (SIGKILL of the postmaster), `stop` (immediate) or `start`.
    pub fn tell(&self, word: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        writeln!(keeper.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    pub fn is_up(&self) -> bool {
        self.psql("postgres", "SELECT 1").status.success()
    }

    pub fn until_up(&self) {
        for _ in 0..600 {
            if self.is_up() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        panic!("PostgreSQL did not start: {log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut keeper = self.keeper.lock().unwrap();
        drop(keeper.stdin.take());
        let _ = keeper.wait();
    }
}

fn certify(dir: &Path) {
    let made = as_postgres(Path::new("openssl"))
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(dir.join("root.key"))
        .arg("-out")
        .arg(dir.join("root.pem"))
        .output()
        .unwrap();
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
}

fn as_postgres(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program).current_dir("/");
    command
}

fn id(args: &[&str]) -> u32 {
    let said = Command::new("id").args(args).output().unwrap();
    String::from_utf8(said.stdout)
        .unwrap()
        .trim()
        .parse()
        .expect("there is no user postgres: install postgresql")
}
