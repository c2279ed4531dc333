//! `parhelia doctor`: this program's side (configuration, home, versions), and the server's own report when one
//! runs. Without a server its probes are run from here; none is started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parhelia_core::api::ServerInfo;
use parhelia_core::config::Config;
use parhelia_core::doctor::{Check, DoctorReport, Finding, Verdict, versions};
use parhelia_core::time::Clock;
use parhelia_server::doctor::{self, Probe, blocking, disk, docker, machine, probe, store_file};
use parhelia_server::home::{Home, HomeError};

use crate::client::Client;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output;

/// The server's probes are bounded; whatever takes longer than all of them hangs.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn run(ctx: &Context) -> Result<()> {
    let began = ctx.clock.monotonic();
    let mut checks = Vec::new();
    let mut config = Some(Config::default());
    if !ctx.is_remote() {
        let (finding, read) = configuration(ctx);
        config = read;
        checks.push(finding.check("configuration", elapsed(ctx, began)));
    }
    let (server, report) = of_server(ctx).await;
    checks.extend(server);
    match report {
        Some(report) => checks.extend(report.checks),
        None if ctx.is_remote() => {}
        None => checks.extend(doctor::run(local(ctx, config)?, &ctx.clock).await),
    }
    let report = DoctorReport { asked_at: ctx.now(), version: parhelia_core::VERSION.to_owned(), checks };
    ctx.out.one(&report, report.verdict().as_str(), || output::doctor::screen(&report))?;
    match report.verdict() {
        Verdict::Error => Err(CliError::failure("unwell", "")),
        Verdict::Ok | Verdict::Warning => Ok(()),
    }
}

fn elapsed(ctx: &Context, began: Duration) -> f64 {
    ctx.clock.monotonic().saturating_sub(began).as_secs_f64() * 1000.0
}

/// Which file it is, and whether a server could start with it.
fn configuration(ctx: &Context) -> (Finding, Option<Config>) {
    let place = || -> Result<(PathBuf, Option<PathBuf>)> { Ok((ctx.home()?, ctx.config()?)) };
    let read = place().and_then(|(home, asked)| {
        let file = asked.clone().unwrap_or_else(|| home.join("parhelia.toml"));
        super::settings::load(ctx, Vec::new()).map(|loaded| (file, loaded.origins.len(), loaded.config))
    });
    match read {
        Ok((file, _, config)) if file.exists() => {
            (Finding::ok(format!("{} is right", file.display())), Some(config))
        }
        Ok((file, 0, config)) => {
            (Finding::ok(format!("no {}: every key has its default", file.display())), Some(config))
        }
        Ok((file, set, config)) => {
            let found =
                format!("no {}; {set} set by variables ('parhelia config show --changed')", file.display());
            (Finding::ok(found), Some(config))
        }
        Err(error) => {
            let fix = Some(error.fix).filter(|fix| !fix.is_empty());
            let fix = fix.unwrap_or_else(|| "correct it; docs/configuration.md has every key".to_owned());
            (Finding::error(error.message, fix), None)
        }
    }
}

/// Whether one answers, of which version, and what it says of itself.
async fn of_server(ctx: &Context) -> (Vec<Check>, Option<DoctorReport>) {
    let began = ctx.clock.monotonic();
    let told = |finding: Finding| vec![finding.check("server", elapsed(ctx, began))];
    let client: Client = match ctx.client_of_running() {
        Ok(client) => client,
        Err(error) => return (told(Finding::error(error.message, error.fix)), None),
    };
    let asked = async {
        let info: ServerInfo = client.get("/server", &[]).await?;
        let report: DoctorReport = client.get("/doctor", &[]).await?;
        Ok::<_, CliError>((info, report))
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok((info, report))) => {
            let found = versions(parhelia_core::VERSION, &info.version);
            (
                told(Finding { found: format!("answers at {}; {}", client.place(), found.found), ..found }),
                Some(report),
            )
        }
        Ok(Err(error)) if error.code == "no_server" && !ctx.is_remote() => {
            (told(Finding::ok("none is running; a command that needs one starts it")), None)
        }
        Ok(Err(error)) => {
            let fix =
                Some(error.fix).filter(|fix| !fix.is_empty()).unwrap_or_else(|| "see its log".to_owned());
            (told(Finding::error(error.message, fix)), None)
        }
        Err(_) => {
            let found = format!("{} does not answer within {}s", client.place(), PATIENCE.as_secs());
            (told(Finding::error(found, "its log says why: server.log in the home")), None)
        }
    }
}

/// What can be looked at without a server.
fn local(ctx: &Context, config: Option<Config>) -> Result<Vec<Probe<'static>>> {
    let home = ctx.home()?;
    let mut probes = disk::probes(&home);
    let url = config.as_ref().map(|config| config.server.database_url.clone());
    let config = config.unwrap_or_default();
    probes.push(match url {
        None => probe("store", async { Finding::warning(REFUSED, "mend the configuration first") }.boxed()),
        Some(Some(url)) => probe("store", async move { shared(&url.0).await }.boxed()),
        Some(None) => {
            let home = home.clone();
            probe("store", blocking(move || own_store(&home)))
        }
    });
    probes.push(probe("provider process", blocking(supervisor)));
    if let Some(cert) = config.server.tls_cert.clone() {
        let now = ctx.now();
        probes.push(probe("certificate", blocking(move || doctor::tls::expiry(&cert, now))));
    }
    let clock: Arc<dyn Clock> = Arc::new(ctx.clock);
    probes.push(probe("provider docker", engine(config, home, clock).boxed()));
    probes.push(probe("clock", {
        let now = ctx.now();
        async move { parhelia_core::doctor::sane(now) }.boxed()
    }));
    probes.extend(machine::probes());
    Ok(probes)
}

async fn engine(config: Config, home: PathBuf, clock: Arc<dyn Clock>) -> Finding {
    let found = docker(&config, &home, clock).await;
    found.unwrap_or_else(|| Finding::ok("off: no engine was named, and none is at the usual place"))
}

const REFUSED: &str = "not looked at: where it is stands in the configuration, and that is refused";

fn own_store(home: &Path) -> Finding {
    match Home::check_unshared(home) {
        Err(HomeError::Shared { path }) => Finding::error(
            "this home works on a shared database, and no address of one is given",
            format!(
                "set PARHELIA_DATABASE_URL (or server.database_url); to go back to the home's own file, remove {}",
                path.display()
            ),
        ),
        // What else is wrong with the home is told by its own check.
        _ => store_file(&home.join("parhelia.sqlite3")),
    }
}

/// A connection that changes nothing.
async fn shared(url: &str) -> Finding {
    match parhelia_server::doctor::reach_database(url).await {
        Ok(found) => Finding::ok(found),
        Err(why) => {
            Finding::error(why, "check that the database runs, and its address in server.database_url")
        }
    }
}

/// The process provider runs this very program as supervisor.
fn supervisor() -> Finding {
    let own: std::io::Result<PathBuf> = std::env::current_exe();
    match own {
        Ok(path) if Path::new(&path).is_file() => {
            Finding::ok(format!("{} will supervise its jobs", path.display()))
        }
        Ok(path) => Finding::error(
            format!("{} is gone, and jobs are supervised by it", path.display()),
            "install it again; running jobs are not affected",
        ),
        Err(error) => {
            Finding::error(format!("cannot find this program itself: {error}"), "is /proc mounted?")
        }
    }
}
