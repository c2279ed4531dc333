//! `parhelia alerts`: who is told of what.

use std::time::Duration;

use parhelia_core::alert::{AlertList, AlertTest};

use crate::client::segment;
use crate::context::Context;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::text::clean;

/// Longer than the longest timeout that an alert can have.
const PATIENCE: Duration = Duration::from_secs(150);

pub(super) async fn list(ctx: &Context) -> Result<()> {
    let found: AlertList = ctx.client()?.get("/alerts", &[]).await?;
    let now = ctx.now();
    ctx.out.list(&found.alerts, |one| one.name.clone(), || output::alerts::list(&found.alerts, now))
}

pub(super) async fn test(ctx: &Context, name: &str) -> Result<()> {
    let path = format!("/alerts/{}/test", segment(name)?);
    let said: AlertTest = ctx.client()?.post_bare(&path, PATIENCE).await?;
    ctx.out.one(&said, &said.delivery, || output::alerts::test(&said))?;
    match &said.error {
        None => Ok(()),
        Some(error) => Err(CliError::failure("alert_not_delivered", format!("{name}: {}", clean(error)))
            .fix("check the url and the secret of the alert in parhelia.toml, and the receiver itself")),
    }
}
