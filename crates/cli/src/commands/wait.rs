//! Waiting until the server has observed something: asked often at first, then once a second.

use std::time::Duration;

use parhelia_core::api::ContainerView;
use parhelia_core::ids::ContainerId;
use parhelia_core::time::Clock;

use crate::client::Client;
use crate::context::Context;
use crate::error::Result;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum Waited {
    Done(Box<ContainerView>),
    /// As it was seen last.
    TimedOut(Box<ContainerView>),
}

/// Looks at the container until `done`; for ever without a deadline (on the context's monotonic clock).
pub(crate) async fn until(
    ctx: &Context,
    client: &Client,
    id: &ContainerId,
    deadline: Option<Duration>,
    done: impl Fn(&ContainerView) -> bool,
) -> Result<Waited> {
    let path = format!("/containers/{id}");
    let mut pause = FIRST;
    loop {
        let view: Box<ContainerView> = client.get(&path, &[]).await?;
        if done(&view) {
            return Ok(Waited::Done(view));
        }
        let left = deadline.map(|at| at.saturating_sub(ctx.clock.monotonic()));
        if left == Some(Duration::ZERO) {
            return Ok(Waited::TimedOut(view));
        }
        tokio::time::sleep(pause.min(left.unwrap_or(pause))).await;
        pause = (pause * 3 / 2).min(LONGEST);
    }
}
