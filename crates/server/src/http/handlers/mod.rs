//! The handlers, by what they are about: parse, call, render.

pub(super) mod admin;
pub(super) mod alerts;
pub(super) mod containers;
pub(super) mod events;
pub(super) mod heartbeats;
pub(super) mod inbox;
pub(super) mod instances;
pub(super) mod jobs;
pub(super) mod mcp;
pub(super) mod reconciler;
pub(super) mod server;
pub(super) mod session_wishes;
pub(super) mod sessions;
pub(super) mod signals;
pub(super) mod stream;
pub(super) mod tokens;
pub(super) mod why;
pub(super) mod workers;

use axum::{Extension, Json};

use super::auth::Shown;
use super::extract::{Ask, Body, Path, misfit, moment, repeated, wait, whole_body, words};
use super::listen::HangUp;
use super::{App, Fault};
use crate::service::Caller;

type Answer<T> = Result<Json<T>, Fault>;
type Who = Extension<Caller>;
