//! The machine around the server: limits, control group, service manager, container.

use std::path::Path;
use std::process::Stdio;

use futures::FutureExt;
use parhelia_core::doctor::{self, Finding, Keeper};
use rustix::process::{Resource, getrlimit};

use super::{Probe, blocking, probe};

pub fn probes() -> Vec<Probe<'static>> {
    vec![
        probe("limits", async { doctor::limits(soft(Resource::Nofile), soft(Resource::Nproc)) }.boxed()),
        probe("control group", blocking(control_group)),
        probe("service manager", service_manager().boxed()),
    ]
}

fn soft(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

/// The limits that hold the server together with everything that it starts.
fn control_group() -> Finding {
    let Some(path) = own_group() else { return Finding::ok("none") };
    let dir = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok().map(|text| text.trim().to_owned());
    let memory = read("memory.max").unwrap_or_else(|| "unknown".to_owned());
    let pids = read("pids.max").unwrap_or_else(|| "unknown".to_owned());
    let found = format!("{path}: memory {memory}, processes {pids}");
    match pids.parse::<u64>() {
        Ok(few) if few < 256 => {
            Finding::warning(found, "raise TasksMax= (pids.max): every job counts against it")
        }
        _ => Finding::ok(found),
    }
}

fn own_group() -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
}

/// Who would end the jobs together with this process.
async fn service_manager() -> Finding {
    let unit = own_group().and_then(|path| unit_of(&path));
    let kill_mode = match &unit {
        Some(unit) => kill_mode(unit).await,
        None => None,
    };
    doctor::keeper(&Keeper { unit, kill_mode, container: container() })
}

/// The innermost service of a control group's path. A session's scope is nobody's unit.
fn unit_of(path: &str) -> Option<String> {
    path.rsplit('/')
        .find(|part| part.ends_with(".service"))
        .filter(|part| !part.starts_with("user@"))
        .map(str::to_owned)
}

async fn kill_mode(unit: &str) -> Option<String> {
    let mut ask = tokio::process::Command::new("systemctl");
    ask.args(["show", "--property=KillMode", "--value", unit]).stdin(Stdio::null()).kill_on_drop(true);
    let answer = ask.output().await.ok().filter(|answer| answer.status.success())?;
    Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned()).filter(|mode| !mode.is_empty())
}

fn container() -> Option<String> {
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let file = marks.into_iter().find(|path| Path::new(path).exists()).map(str::to_owned);
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let variable = ["KUBERNETES_SERVICE_HOST", "container"].into_iter().find(|name| set(name));
    file.or_else(|| variable.map(|name| format!("the variable {name} is set")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_in_the_path_of_the_group() {
        assert_eq!(unit_of("/system.slice/parhelia.service").as_deref(), Some("parhelia.service"));
        assert_eq!(
            unit_of("/user.slice/user-1000.slice/user@1000.service/app.slice/p.service/x").as_deref(),
            Some("p.service")
        );
        assert_eq!(unit_of("/user.slice/user-1000.slice/session-3.scope"), None);
        assert_eq!(unit_of("/user.slice/user-1000.slice/user@1000.service/app.slice"), None);
        assert_eq!(unit_of("/"), None);
    }
}
