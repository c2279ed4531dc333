//! `parhelia tokens`: who may come in.

use parhelia_core::access::{NewToken, Token, TokenList, TokenRequest};

use crate::args::TokenCreateArgs;
use crate::client::segment;
use crate::context::Context;
use crate::error::Result;
use crate::output;
use crate::output::text::time;

pub(super) async fn list(ctx: &Context, all: bool) -> Result<()> {
    let query: &[(&str, String)] = if all { &[("all", "true".to_owned())] } else { &[] };
    let found: TokenList = ctx.client()?.get("/tokens", query).await?;
    let now = ctx.now();
    ctx.out.list(&found.tokens, |one| one.id.to_string(), || output::tokens::list(&found.tokens, now))
}

/// The secret alone on standard output, so that it can be redirected into a file.
pub(super) async fn create(ctx: &Context, args: TokenCreateArgs) -> Result<()> {
    let request = TokenRequest {
        subject: args.subject,
        role: args.role,
        container: args.container,
        expires_in_seconds: args.expires.map(|d| d.as_secs()),
    };
    let made: NewToken = ctx.client()?.post_once("/tokens", &request).await?;
    let Token { id, subject, role, expires_at, .. } = &made.token;
    let until =
        expires_at.map_or_else(|| "until it is revoked".to_owned(), |at| format!("until {}", time(at)));
    ctx.out.note(&format!("{id} for {subject} ({role}) holds {until}. The secret is not shown again."));
    ctx.out.one(&made, &made.secret, || format!("{}\n", made.secret))
}

pub(super) async fn revoke(ctx: &Context, id: &str) -> Result<()> {
    let path = format!("/tokens/{}/revoke", segment(id)?);
    let gone: Token = ctx.client()?.post_again(&path, &serde_json::json!({})).await?;
    ctx.out.one(&gone, gone.id.as_str(), || format!("Revoked {} of {}.\n", gone.id, gone.subject))
}
