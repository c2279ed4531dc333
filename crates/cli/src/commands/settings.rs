//! `parhelia config`: what the server is told, and by whom. Also reads it for `up`: file, environment, flags.

use parhelia_core::config::{Config, Layers, Loaded};

use crate::args::UpArgs;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};
use crate::output;

/// The settings that flags of `up` are a short way to.
pub(crate) fn flags(args: &UpArgs) -> Vec<(String, &'static str, String)> {
    let path = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let insecure = args.insecure_listen.then(|| "true".to_owned());
    [
        ("--listen", "server.listen", args.listen.map(|address| address.to_string())),
        ("--tls-cert", "server.tls_cert", args.tls_cert.as_ref().map(path)),
        ("--tls-key", "server.tls_key", args.tls_key.as_ref().map(path)),
        ("--log-format", "log.format", args.log_format.clone()),
        ("--insecure-listen", "server.insecure_listen", insecure),
    ]
    .into_iter()
    .filter_map(|(flag, key, value)| Some((flag.to_owned(), key, value?)))
    .collect()
}

/// A server that is started on demand inherits the environment, and so reads the same.
pub(crate) fn load(ctx: &Context, flags: Vec<(String, &'static str, String)>) -> Result<Loaded> {
    let asked = ctx.config()?;
    let path = match &asked {
        Some(path) => path.clone(),
        None => ctx.home()?.join("parhelia.toml"),
    };
    let shown = path.display().to_string();
    let file = match std::fs::read_to_string(&path) {
        Ok(text) => Some((shown.clone(), text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && asked.is_none() => None,
        Err(error) => return Err(CliError::io(format!("cannot read the configuration {shown}"), &error)),
    };
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with("PARHELIA_"))
        .collect();
    Config::load(Layers { file, environment, flags }).map_err(|error| {
        CliError::new(Exit::Usage, "config", format!("the configuration is wrong: {error}"))
            .fix("'parhelia config show --origin' shows every setting; docs/configuration.md says what each is for")
    })
}

pub(super) fn show(ctx: &Context, origin: bool, changed: bool) -> Result<()> {
    let mut settings = load(ctx, Vec::new())?.settings();
    if changed {
        settings.retain(|one| one.origin != parhelia_core::config::Origin::Default);
    }
    ctx.out.list(
        &settings,
        |one| one.key.clone(),
        || output::settings::list(&settings, origin, ctx.out.is_wide()),
    )
}
