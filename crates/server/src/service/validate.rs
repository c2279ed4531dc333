//! What a request may contain. Refused here means that nothing was recorded.

use std::collections::{BTreeMap, BTreeSet};

use parhelia_core::api::RunRequest;
use parhelia_core::engine::is_session;
use parhelia_core::ids::{SessionId, WaitId};
use parhelia_core::job::api::ExecRequest;
use parhelia_core::sandbox::OURS;
use parhelia_core::session::api::StartSession;

use super::ServiceError;

/// Linux accepts no longer single argument or variable.
const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;
/// What `execve` accepts in all, with room left for the environment of the server.
const MAX_COMMAND_BYTES: usize = 1 << 20;
const MAX_NAME_BYTES: usize = 128;
/// Of what somebody can give instead of a session's name.
const ID_PREFIXES: &[&str] = &[SessionId::PREFIX, WaitId::PREFIX];
const MAX_LABELS: usize = 64;
const MAX_ENV: usize = 512;
const MAX_VOLUMES: usize = 64;
const MAX_SECRETS: usize = 64;
/// With `/run/secrets/` before it, it must fit into an entry of an archive (100 bytes).
const SECRET_NAME_MAX_BYTES: usize = 88;

pub(super) fn run(request: &RunRequest) -> Result<(), ServiceError> {
    let invalid = |message: String, fix: &str| Err(ServiceError::invalid(message, fix));
    if request.command.is_empty() || request.command[0].is_empty() {
        return invalid("there is no command to run".into(), "give one after '--', for example: -- sleep 60");
    }
    let mut total = 0;
    for (i, argument) in request.command.iter().enumerate() {
        total += argument.len() + 1;
        if argument.contains('\0') {
            return invalid(
                format!("argument {i} contains a NUL byte"),
                "remove it: no program can receive one",
            );
        }
        if argument.len() > MAX_ARGUMENT_BYTES {
            return invalid(
                format!(
                    "argument {i} is {} bytes long; the system takes at most {MAX_ARGUMENT_BYTES} in one argument",
                    argument.len()
                ),
                "put it into a file and pass the file's name",
            );
        }
    }
    if total > MAX_COMMAND_BYTES {
        return invalid(
            format!("the arguments are {total} bytes long; at most {MAX_COMMAND_BYTES} fit"),
            "put them into a file and pass the file's name",
        );
    }
    name("name", request.name.as_deref())?;
    name("task", request.task_id.as_deref())?;
    name("tmux session", request.tmux_session.as_deref())?;
    if let Some(title) = request.task_title.as_deref().filter(|t| t.len() > 1000) {
        return invalid(format!("the task title is {} bytes long", title.len()), "use at most 1000 bytes");
    }
    pairs("label", &request.labels, MAX_LABELS, 1024)?;
    pairs("environment variable", &request.env, MAX_ENV, MAX_ARGUMENT_BYTES)?;
    not_ours(&request.env)?;
    let resources = &request.resources;
    if resources.cpu_cores.is_some_and(|c| !c.is_finite() || c <= 0.0 || c > 4096.0) {
        return invalid("cpu_cores is out of range".into(), "give a number above 0 and at most 4096");
    }
    if resources.memory_mb.is_some_and(|m| !(4..=64 << 20).contains(&m)) {
        return invalid("memory_mb is out of range".into(), "give at least 4 and at most 67108864 MB");
    }
    name("gpu", resources.gpu_type.as_deref())?;
    name("user", request.user.as_deref())?;
    name("network", request.network.as_deref())?;
    volumes(request)?;
    secrets(request)?;
    if request.idle_timeout_seconds.is_some_and(|s| s == 0 || s > 30 * 86_400) {
        return invalid("the idle timeout is out of range".into(), "give from 1 second to 30 days");
    }
    Ok(())
}

/// What comes with a cascade.
pub(super) fn session(request: &StartSession) -> Result<(), ServiceError> {
    name("name", request.name.as_deref())?;
    if let Some(named) = request.name.as_deref()
        && let Some(prefix) = ID_PREFIXES.iter().find(|prefix| named.starts_with(**prefix))
    {
        return Err(ServiceError::invalid(
            format!("a name cannot begin with '{prefix}': ids do"),
            "choose another, such as nightly-2",
        ));
    }
    pairs("environment variable", &request.env, MAX_ENV, MAX_ARGUMENT_BYTES)?;
    not_ours(&request.env)
}

fn not_ours(env: &BTreeMap<String, String>) -> Result<(), ServiceError> {
    match env.keys().find(|key| key.starts_with(OURS)) {
        None => Ok(()),
        Some(reserved) => Err(ServiceError::invalid(
            format!("the variable {} is ours to set", reserved.chars().take(64).collect::<String>()),
            "choose a name that does not begin with PARHELIA_",
        )),
    }
}

/// What is asked of a job; the rest is checked as of every container.
pub(super) fn exec(request: &ExecRequest) -> Result<(), ServiceError> {
    let invalid = |message: String, fix: &str| Err(ServiceError::invalid(message, fix));
    if request.command.is_empty() && request.engine.is_none() {
        return invalid(
            "there is no command to run".into(),
            "give one after '--', for example: -- make test",
        );
    }
    if request.timeout_seconds.is_some_and(|s| s == 0 || s > 365 * 86_400) {
        return invalid("the timeout is out of range".into(), "give from 1 second to 365 days");
    }
    if request.terminal.is_some_and(|size| size.rows == 0 || size.cols == 0) {
        return invalid(
            "a terminal has at least one row and one column".into(),
            "give its size, as 24 and 80",
        );
    }
    if request.session.as_ref().is_some_and(|session| !is_session(session)) {
        return invalid(
            "that cannot be an agent's session".into(),
            "use its id: letters, digits, '-', '_', '.', ':' and '/', and begin with a letter or a digit",
        );
    }
    name("engine", request.engine.as_deref())
}

fn volumes(request: &RunRequest) -> Result<(), ServiceError> {
    if request.volumes.len() > MAX_VOLUMES {
        return Err(ServiceError::invalid(
            format!("{} volumes are too many", request.volumes.len()),
            format!("use at most {MAX_VOLUMES}"),
        ));
    }
    let mut paths = BTreeSet::new();
    for volume in &request.volumes {
        volume.check().map_err(|why| {
            ServiceError::invalid(why, "write it like NAME:/path, or NAME:/path:ro to only read it")
        })?;
        if !paths.insert(volume.path.trim_end_matches('/')) {
            return Err(ServiceError::invalid(
                format!("two volumes are to be at {}", volume.path),
                "give each a path of its own",
            ));
        }
    }
    Ok(())
}

fn secrets(request: &RunRequest) -> Result<(), ServiceError> {
    if request.secrets.len() > MAX_SECRETS {
        return Err(ServiceError::invalid(
            format!("{} secrets are too many", request.secrets.len()),
            format!("use at most {MAX_SECRETS}"),
        ));
    }
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    for secret in &request.secrets {
        if secret.is_empty() || secret.len() > SECRET_NAME_MAX_BYTES || !secret.bytes().all(plain) {
            // What was given may be the value itself, by mistake: it is not repeated.
            return Err(ServiceError::invalid(
                "a secret is given by its name, and this is not one",
                "use letters, digits, '_' and '-', at most 88; the value comes from {home}/secrets/NAME or the server's environment",
            ));
        }
    }
    Ok(())
}

fn name(what: &str, value: Option<&str>) -> Result<(), ServiceError> {
    let Some(value) = value else { return Ok(()) };
    let plain = value.chars().all(|c| !c.is_control());
    if value.is_empty() || value.len() > MAX_NAME_BYTES || !plain {
        let shown: String = value.chars().take(40).filter(|c| !c.is_control()).collect();
        return Err(ServiceError::invalid(
            format!("'{shown}' cannot be a {what}"),
            format!("use 1 to {MAX_NAME_BYTES} bytes without control characters"),
        ));
    }
    Ok(())
}

/// A line that people wrote.
pub(super) fn words(what: &str, value: &str, longest: usize) -> Result<(), ServiceError> {
    if value.trim().is_empty() || value.len() > longest || value.chars().any(|c| c.is_control()) {
        let shown: String = value.chars().take(40).filter(|c| !c.is_control()).collect();
        return Err(ServiceError::invalid(
            format!("{what} cannot be '{shown}'"),
            format!("use 1 to {longest} bytes without control characters"),
        ));
    }
    Ok(())
}

/// A value that is kept in the database.
pub(super) fn size(what: &str, value: &serde_json::Value, largest: usize) -> Result<(), ServiceError> {
    let bytes = value.to_string().len();
    if bytes > largest {
        return Err(ServiceError::invalid(
            format!("{what} is {bytes} bytes long as JSON"),
            format!("use at most {largest}; put it into a file and give the file's name"),
        ));
    }
    Ok(())
}

fn pairs(
    what: &str,
    map: &BTreeMap<String, String>,
    most: usize,
    longest: usize,
) -> Result<(), ServiceError> {
    if map.len() > most {
        return Err(ServiceError::invalid(
            format!("{} {what}s are too many", map.len()),
            format!("use at most {most}"),
        ));
    }
    for (key, value) in map {
        let good_key = !key.is_empty() && key.len() <= 256 && !key.contains(['=', '\0']);
        if !good_key || value.contains('\0') || key.len() + value.len() > longest {
            let shown: String = key.chars().take(40).collect();
            return Err(ServiceError::invalid(
                format!("the {what} '{shown}' is not usable"),
                format!(
                    "names have no '=' and no NUL byte, and name and value together at most {longest} bytes"
                ),
            ));
        }
    }
    Ok(())
}
