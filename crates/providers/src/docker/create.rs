//! Makes a container: create, put the secrets in, start. Each step may be repeated: a second create of the same
//! id meets the first one's name, and goes on where that was left.

use std::collections::HashMap;
use std::sync::Arc;

use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures::StreamExt;
use parhelia_core::config::DockerSupervisor;
use parhelia_core::sandbox::{
    Inspection, Phase, Sandbox, SandboxSpec, TAG_CONTAINER, TAG_INSTANCE, TAG_TASK,
};

use super::engine::{status, told};
use super::files::Files;
use super::{Inner, LABEL_NAME, LABEL_SUPERVISOR, observe, secrets};
use crate::supervise::{JOBS_DIRECTORY, SECRET_FILE};
use crate::{CreateError, ProviderError, SandboxRef};

/// What we put into a container is in here.
const OURS: &str = "/.parhelia";

pub(crate) async fn create(
    inner: &Arc<Inner>,
    spec: &SandboxSpec,
    secret: Option<&str>,
) -> Result<Sandbox, CreateError> {
    let image = validate(inner, spec).map_err(CreateError::Rejected)?;
    let prepared = async {
        let secrets = secrets::resolve(&inner.config.secrets, &spec.surroundings.secrets);
        Ok((secrets.map_err(CreateError::Rejected)?, have_image(inner, image).await?))
    };
    let (secrets, image_user) = match prepared.await {
        Ok(prepared) => prepared,
        Err(CreateError::Rejected(why)) => return settle(inner, spec, why).await,
        Err(unknown) => return Err(unknown),
    };
    let docker = inner.engine.client().await.map_err(unknown)?;
    let options = CreateContainerOptionsBuilder::default().name(spec.container_id.as_str()).build();
    let body = body(inner, spec, image);
    match docker.create_container(Some(options), body).await {
        Ok(created) => {
            for warning in created.warnings {
                tracing::warn!(container = %spec.container_id, "the engine warns: {warning}");
            }
        }
        // Its name is taken: by an earlier attempt of ours, as the label will prove.
        Err(error) if status(&error) == Some(409) => {}
        Err(error) => return Err(refused(inner, error).await),
    }
    let found = present(inner, spec).await?;
    if found.phase != Phase::Starting {
        return Ok(found);
    }
    let mut files = Files::default();
    let user = spec.surroundings.user.as_deref().or(image_user.as_deref());
    secrets::pack(&mut files, user, &secrets);
    if inner.config.supervisor.mode != DockerSupervisor::Off {
        // Whoever it runs as must be able to make its files there.
        files.directory(JOBS_DIRECTORY, 0o1777);
        if let Some(secret) = secret {
            secrets::pack_one(&mut files, user, SECRET_FILE, secret.as_bytes());
        }
    }
    if let Err(error) = files.deliver(&docker, &found.sandbox_id).await {
        return Err(give_up(inner, &found, error, "its files could not be put into it").await);
    }
    match docker.start_container(&found.sandbox_id, None).await {
        Ok(()) => present(inner, spec).await,
        Err(error) if status(&error).is_some() => {
            // The engine keeps the failure with the container, which is then seen as ended.
            let after = present(inner, spec).await?;
            match after.phase {
                Phase::Starting => Err(give_up(inner, &found, error, "it could not be started").await),
                _ => Ok(after),
            }
        }
        Err(error) => Err(refused(inner, error).await),
    }
}

fn unknown(error: ProviderError) -> CreateError {
    CreateError::Unknown(error.to_string())
}

/// An answer of the engine below 500 is a refusal; anything else may have been carried out.
async fn refused(inner: &Inner, error: Error) -> CreateError {
    match inner.engine.failed(&error).await {
        ProviderError::Rejected(why) => CreateError::Rejected(format!("the engine refused it: {why}")),
        ProviderError::Unreachable(why) => CreateError::Unknown(why),
    }
}

/// What was there at an earlier attempt (a secret, the image) is missing now, and that attempt may have made it: a refusal
/// must leave nothing behind.
async fn settle(inner: &Arc<Inner>, spec: &SandboxSpec, why: String) -> Result<Sandbox, CreateError> {
    let by_name = SandboxRef { container_id: spec.container_id.clone(), sandbox_id: None };
    match observe::inspect(inner, &by_name).await {
        Ok(Inspection::Absent) => Err(CreateError::Rejected(why)),
        Ok(Inspection::Present(found)) if found.tags.instance != spec.instance_id => {
            Err(CreateError::Rejected(why))
        }
        Ok(Inspection::Present(found)) if found.phase == Phase::Starting => {
            Err(discard(inner, &found, why).await)
        }
        Ok(Inspection::Present(found)) => Ok(*found),
        // A stranger has its name.
        Err(ProviderError::Rejected(_)) => Err(CreateError::Rejected(why)),
        Err(ProviderError::Unreachable(away)) => Err(CreateError::Unknown(format!("{why}; {away}"))),
    }
}

async fn give_up(inner: &Inner, made: &Sandbox, error: Error, what: &str) -> CreateError {
    let why = format!("{what}: {}", told(&error));
    if status(&error).is_none() {
        return CreateError::Unknown(why);
    }
    discard(inner, made, why).await
}

/// Made and useless: it goes, so that nothing of it is left behind a refusal.
async fn discard(inner: &Inner, made: &Sandbox, why: String) -> CreateError {
    let Ok(docker) = inner.engine.client().await else { return CreateError::Unknown(why) };
    let options = RemoveContainerOptionsBuilder::default().v(true).build();
    match docker.remove_container(&made.sandbox_id, Some(options)).await {
        Ok(()) => CreateError::Rejected(why),
        Err(error) if status(&error) == Some(404) => CreateError::Rejected(why),
        Err(_) => CreateError::Unknown(why),
    }
}

async fn present(inner: &Arc<Inner>, spec: &SandboxSpec) -> Result<Sandbox, CreateError> {
    let by_name = SandboxRef { container_id: spec.container_id.clone(), sandbox_id: None };
    match observe::inspect(inner, &by_name).await {
        Ok(Inspection::Present(found)) => {
            if found.tags.container == spec.container_id && found.tags.instance == spec.instance_id {
                Ok(*found)
            } else {
                Err(CreateError::Rejected(format!(
                    "the name {} is taken by a container with other labels; remove or rename it",
                    spec.container_id
                )))
            }
        }
        Ok(Inspection::Absent) => {
            Err(CreateError::Unknown(format!("{} was made and cannot be seen", spec.container_id)))
        }
        Err(ProviderError::Rejected(why)) => Err(CreateError::Rejected(why)),
        Err(error) => Err(unknown(error)),
    }
}

/// What can be known to be wrong before the engine is asked. Gives the image.
fn validate<'a>(inner: &Inner, spec: &'a SandboxSpec) -> Result<&'a str, String> {
    let image = spec.image.as_deref().filter(|image| !image.is_empty()).ok_or_else(|| {
        "the docker provider needs an image; name one with --image, as 'docker images' lists it".to_owned()
    })?;
    if let Some(gpu) = &spec.resources.gpu_type {
        return Err(format!("the docker provider cannot give a GPU ({gpu}) yet; leave it out"));
    }
    if let Some(label) = spec.labels.keys().find(|label| label.starts_with("parhelia.")) {
        return Err(format!(
            "the label {label} is ours to set; choose a name that does not begin with parhelia."
        ));
    }
    if spec.workdir.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
        return Err(
            "the working directory must be a full path inside the container; begin it with /".to_owned()
        );
    }
    for volume in &spec.surroundings.volumes {
        volume.check()?;
        let secret = !spec.surroundings.secrets.is_empty() && lies_in(secrets::DIRECTORY, &volume.path);
        if secret || lies_in(&volume.path, OURS) || lies_in(OURS, &volume.path) {
            return Err(format!(
                "the volume {} at {} would keep what is put there for this container alone ({}); choose another path",
                volume.name,
                volume.path,
                if secret { secrets::DIRECTORY } else { OURS }
            ));
        }
    }
    let supervisor = &inner.config.supervisor;
    if supervisor.mode == DockerSupervisor::Off {
        let needs =
            [("an idle timeout", spec.idle_timeout_seconds.is_some()), ("tmux", spec.tmux_session.is_some())];
        if let Some((what, _)) = needs.iter().find(|(_, asked)| *asked) {
            return Err(format!(
                "{what} needs a supervisor inside the container; set docker.supervisor to \"mount\" or \"image\""
            ));
        }
    } else if !inner.engine.address.is_local() {
        return Err(format!(
            "docker.supervisor = \"{}\" needs an engine of this machine, reached through its unix socket",
            supervisor.mode
        ));
    }
    Ok(image)
}

/// Whether a path is a directory, or in it.
fn lies_in(path: &str, directory: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    parts(path).starts_with(&parts(directory))
}

/// The image must be there; it is pulled only if the configuration says so. Gives its default user.
async fn have_image(inner: &Inner, image: &str) -> Result<Option<String>, CreateError> {
    let docker = inner.engine.client().await.map_err(unknown)?;
    let user = |found: bollard::models::ImageInspect| found.config.and_then(|config| config.user);
    match docker.inspect_image(image).await {
        Ok(found) => return Ok(user(found)),
        Err(error) if status(&error) == Some(404) && inner.config.pull => {}
        Err(error) if status(&error) == Some(404) => {
            return Err(CreateError::Rejected(format!(
                "the engine has no image '{image}'; run 'docker pull {image}', or set docker.pull = true"
            )));
        }
        Err(error) => return Err(refused(inner, error).await),
    }
    let options = CreateImageOptionsBuilder::default().from_image(&with_tag(image)).build();
    let mut progress = std::pin::pin!(docker.create_image(Some(options), None, None));
    while let Some(step) = progress.next().await {
        let failed = match step {
            Ok(step) => step.error_detail.and_then(|detail| detail.message),
            // Its own word, and not that it has gone in the middle of it.
            Err(error) if status(&error).is_some() => Some(told(&error)),
            Err(error) => return Err(refused(inner, error).await),
        };
        if let Some(why) = failed {
            return Err(CreateError::Rejected(format!("the image '{image}' could not be pulled: {why}")));
        }
    }
    match docker.inspect_image(image).await {
        Ok(found) => Ok(user(found)),
        Err(error) => Err(refused(inner, error).await),
    }
}

/// Without a tag the engine would pull all of them.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}

fn body(inner: &Inner, spec: &SandboxSpec, image: &str) -> ContainerCreateBody {
    let around = &spec.surroundings;
    let mut labels: HashMap<String, String> =
        spec.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.insert(TAG_INSTANCE.to_owned(), spec.instance_id.clone());
    labels.insert(TAG_CONTAINER.to_owned(), spec.container_id.to_string());
    let more = [(TAG_TASK, &spec.task_id), (LABEL_NAME, &spec.name)];
    labels.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))));

    let mut env: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    env.push(format!("PARHELIA_CONTAINER_ID={}", spec.container_id));
    env.push(format!("PARHELIA_INSTANCE_ID={}", spec.instance_id));
    env.extend(spec.task_id.iter().map(|task| format!("PARHELIA_TASK_ID={task}")));

    let mut mounts: Vec<Mount> = around
        .volumes
        .iter()
        .map(|volume| Mount {
            typ: Some(MountType::VOLUME),
            source: Some(volume.name.clone()),
            target: Some(volume.path.clone()),
            read_only: Some(volume.read_only),
            ..Mount::default()
        })
        .collect();
    let mut cmd = spec.command.clone();
    let mut entrypoint = None;
    let supervisor = &inner.config.supervisor;
    if supervisor.mode != DockerSupervisor::Off {
        labels.insert(LABEL_SUPERVISOR.to_owned(), supervisor.mode.to_string());
        let inside = super::inside::wrap(supervisor, spec);
        mounts.extend(inside.mounts);
        entrypoint = Some(inside.entrypoint);
        cmd = inside.arguments;
    }
    let memory = spec.resources.memory_mb.map(|mb| mb.saturating_mul(1024 * 1024));
    let host_config = HostConfig {
        nano_cpus: spec.resources.cpu_cores.map(|cores| (cores * 1e9).round() as i64),
        memory,
        // The limit is the limit: no swap on top of it.
        memory_swap: memory,
        network_mode: around.network.clone(),
        mounts: Some(mounts),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(cmd),
        entrypoint,
        env: Some(env),
        working_dir: spec.workdir.clone(),
        user: around.user.clone(),
        // An image's own would go to our supervisor, which passes on a termination and nothing else.
        stop_signal: (supervisor.mode != DockerSupervisor::Off).then(|| "SIGTERM".to_owned()),
        labels: Some(labels),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_in_itself_and_in_what_is_above_it() {
        for (path, directory) in
            [("/run/secrets", "/run"), ("/run/secrets", "/run/./secrets/"), ("/a/b", "/")]
        {
            assert!(lies_in(path, directory), "{path} {directory}");
        }
        assert!(!lies_in("/run/secrets", "/run/secrets/deeper") && !lies_in("/running", "/run"));
    }

    #[test]
    fn an_image_without_a_tag_is_the_latest_and_not_all_of_them() {
        assert_eq!(with_tag("alpine"), "alpine:latest");
        assert_eq!(with_tag("host:5000/team/agent"), "host:5000/team/agent:latest");
        assert_eq!(with_tag("alpine:3"), "alpine:3");
        assert_eq!(with_tag("alpine@sha256:00"), "alpine@sha256:00");
    }
}
