//! Tokens: made, listed, revoked.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use parhelia_core::access::{NewToken, Token, TokenList, TokenRequest};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, App, Ask, Body, Fault, Path, Who};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct TokensAsk {
    /// Those that containers were given too.
    #[serde(default)]
    #[param(required = false)]
    all: bool,
}

/// The tokens, the newest first. Never their secrets: those are not kept.
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens", params(TokensAsk), responses((status = 200, body = TokenList)),
)]
pub(in crate::http) async fn tokens(State(app): State<App>, Ask(ask): Ask<TokensAsk>) -> Answer<TokenList> {
    Ok(Json(app.service.tokens(ask.all).await?))
}

/// A new token. Its secret is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenRequest, responses((status = 201, body = NewToken)),
)]
pub(in crate::http) async fn create_token(
    State(app): State<App>,
    Extension(who): Who,
    Body(request): Body<TokenRequest>,
) -> Result<(StatusCode, Json<NewToken>), Fault> {
    Ok((StatusCode::CREATED, Json(app.service.create_token(request, &who).await?)))
}

/// Ends a token, by its id or a unique prefix of it.
#[utoipa::path(
    post, path = "/api/v1/tokens/{id}/revoke", tag = "tokens", params(("id" = String, Path)),
    responses((status = 200, body = Token)),
)]
pub(in crate::http) async fn revoke_token(
    State(app): State<App>,
    Path(id): Path<String>,
    Extension(who): Who,
) -> Answer<Token> {
    Ok(Json(app.service.revoke_token(&id, &who).await?))
}
