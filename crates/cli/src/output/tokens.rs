//! The screen of `parhelia tokens`.

use jiff::Timestamp;
use parhelia_core::access::Token;
use parhelia_core::time::{human_age, seconds_between};

use super::table::{Table, cell};
use super::text::{clean, or_dash, time};

fn status(token: &Token, now: Timestamp) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(end)) if end <= now => "expired".to_owned(),
        (None, Some(end)) => format!("until {}", time(end)),
        (None, None) => "valid".to_owned(),
    }
}

pub(crate) fn list(tokens: &[Token], now: Timestamp) -> String {
    let mut table = Table::new(&[
        ("TOKEN", 0),
        ("SUBJECT", 0),
        ("ROLE", 0),
        ("CONTAINER", 0),
        ("STATUS", 0),
        ("LAST USED", 0),
        ("CREATED BY", 0),
    ]);
    for token in tokens {
        let used =
            token.last_used_at.map(|at| format!("{} ago", human_age(seconds_between(at, now).max(0.0))));
        table.row(vec![
            cell(token.id.as_str()),
            cell(clean(&token.subject)),
            cell(token.role.as_str()),
            cell(or_dash(token.container_id.as_ref().map(|id| id.as_str()))),
            cell(status(token, now)),
            cell(used.as_deref().unwrap_or("never")),
            cell(clean(&token.created_by)),
        ]);
    }
    let mut out = table.render();
    if tokens.is_empty() {
        out.push_str("No tokens. Make one with 'parhelia tokens create SUBJECT --role viewer'.\n");
    }
    out
}
