//! Who may do what: roles, what a route asks for, and the shapes of tokens. The rule is here and pure; the
//! door that applies it is `server/src/http/auth.rs`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{ContainerId, TokenId};
use crate::word_enum;

word_enum!(
    /// What a token opens. The first three are a ladder; `worker` stands beside it.
    Role {
        /// Looks.
        Viewer = "viewer",
        /// Looks, starts and ends.
        Operator = "operator",
        /// Everything, tokens and the server itself included.
        Admin = "admin",
        /// Speaks for one container: its heartbeats, its own record, and nothing of anybody else.
        Worker = "worker",
    }
);

word_enum!(
    /// What a route asks of its caller.
    Access {
        /// Anybody who can reach the address.
        Public = "public",
        Viewer = "viewer",
        /// A viewer, or a worker about its own container.
        ViewerOrOwn = "viewer_or_own",
        Operator = "operator",
        /// An operator, or a worker about its own container.
        OperatorOrOwn = "operator_or_own",
        Admin = "admin",
    }
);

impl Role {
    /// Whether this role may come in. Of a worker it must still be checked that it is about its own.
    pub fn may(self, access: Access) -> bool {
        match access {
            Access::Public => true,
            Access::ViewerOrOwn | Access::OperatorOrOwn if self == Role::Worker => true,
            Access::Viewer | Access::ViewerOrOwn => {
                matches!(self, Role::Viewer | Role::Operator | Role::Admin)
            }
            Access::Operator | Access::OperatorOrOwn => matches!(self, Role::Operator | Role::Admin),
            Access::Admin => self == Role::Admin,
        }
    }
}

/// `POST /api/v1/tokens`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The person or program that gets it: events and limits name it.
    pub subject: String,
    pub role: Role,
    /// The container that a `worker` speaks for.
    #[serde(default)]
    pub container: Option<String>,
    /// Without it the token holds until it is revoked.
    #[serde(default)]
    pub expires_in_seconds: Option<u64>,
}

/// A token as it is kept: never the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: TokenId,
    pub subject: String,
    pub role: Role,
    pub container_id: Option<ContainerId>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
}

impl Token {
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// The one answer that has the secret in it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// Shown once; only its hash is kept.
    pub secret: String,
    #[serde(flatten)]
    pub token: Token,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// `GET /api/v1/tokens`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub tokens: Vec<Token>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_has_no_hole_and_a_worker_stands_beside_it() {
        let table: Vec<String> = Access::ALL
            .iter()
            .map(|access| {
                let who: Vec<&str> =
                    Role::ALL.iter().filter(|role| role.may(*access)).map(|role| role.as_str()).collect();
                format!("{access}: {}", who.join(" "))
            })
            .collect();
        assert_eq!(
            table,
            [
                "public: viewer operator admin worker",
                "viewer: viewer operator admin",
                "viewer_or_own: viewer operator admin worker",
                "operator: operator admin",
                "operator_or_own: operator admin worker",
                "admin: admin",
            ]
        );
    }

    #[test]
    fn a_token_ends_at_its_time_and_at_its_revocation() {
        let at = |s: &str| s.parse::<Timestamp>().unwrap();
        let token = Token {
            id: TokenId::parse("tok-0001").unwrap(),
            subject: "ci".into(),
            role: Role::Viewer,
            container_id: None,
            created_at: at("2026-01-01T00:00:00Z"),
            created_by: "local".into(),
            expires_at: Some(at("2026-01-02T00:00:00Z")),
            revoked_at: None,
            last_used_at: None,
        };
        assert!(token.is_valid(at("2026-01-01T23:59:59Z")));
        assert!(!token.is_valid(at("2026-01-02T00:00:00Z")));
        let revoked = Token { revoked_at: Some(at("2026-01-01T01:00:00Z")), ..token };
        assert!(!revoked.is_valid(at("2026-01-01T02:00:00Z")));
    }
}
