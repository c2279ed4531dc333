//! `parhelia why ID`: why something is as it is, and who can change that.

use parhelia_core::api::Why;

use crate::client::segment;
use crate::context::Context;
use crate::error::Result;
use crate::output;

pub(super) async fn run(ctx: &Context, id: &str) -> Result<()> {
    let why: Why = ctx.client()?.get(&format!("/why/{}", segment(id)?), &[]).await?;
    ctx.out.one(&why, &why.id, || output::why::screen(&why))
}
