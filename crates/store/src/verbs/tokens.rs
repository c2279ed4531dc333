//! Tokens: made, looked up by hash, revoked. The secret never comes here.

use jiff::Timestamp;
use parhelia_core::access::Token;
use parhelia_core::event::NewEvent;
use parhelia_core::ids::{ContainerId, TokenId};

use super::text_of;
use crate::error::Result;
use crate::script::{Script, params};
use crate::{Store, row, sql};

impl Store {
    pub async fn create_token(
        &self,
        token: &Token,
        hash: &str,
        event: Option<NewEvent>,
        now: Timestamp,
    ) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("create_token");
        script.insert_token(token, hash);
        script.events(event.into_iter().collect(), &now);
        self.write(script).await.map(drop)
    }

    /// Ends it, with the event that tells so. `Conflict`: it is revoked already, or there is none.
    pub async fn revoke_token(&self, id: &TokenId, event: NewEvent, now: Timestamp) -> Result<()> {
        let now = text_of(now);
        let mut script = Script::new("revoke_token");
        script.one(&sql::TOKEN_REVOKE, params![id, &now]);
        script.event(event, &now);
        self.write(script).await.map(drop)
    }

    /// The token with that hash, whether or not it still holds; not one whose container is over.
    pub async fn token_by_hash(&self, hash: &str) -> Result<Option<Token>> {
        self.query_one(&sql::TOKEN_BY_HASH, params![hash], row::token).await
    }

    /// The newest first; with those of containers only when asked for.
    pub async fn tokens(&self, of_containers: bool, limit: i64) -> Result<Vec<Token>> {
        self.query(&sql::TOKENS, params![of_containers, limit], row::token).await
    }

    pub async fn tokens_used(&self, used: &[(TokenId, Timestamp)]) -> Result<()> {
        let mut script = Script::new("tokens_used");
        for (id, at) in used {
            script.step(&sql::TOKEN_USED, params![id, *at]);
        }
        self.write(script).await.map(drop)
    }
}

impl Script {
    pub(crate) fn insert_token(&mut self, token: &Token, hash: &str) {
        self.step(
            &sql::TOKEN_INSERT,
            params![
                &token.id,
                &token.subject,
                token.role,
                token.container_id.as_ref(),
                hash,
                token.created_at,
                &token.created_by,
                token.expires_at,
            ],
        );
    }

    /// What a container is given to speak for itself replaces what earlier attempts were given.
    pub(crate) fn replace_token(&mut self, container: &ContainerId, token: &Token, hash: &str) {
        self.step(&sql::TOKENS_OF_CONTAINER_REVOKE, params![container, token.created_at]);
        self.insert_token(token, hash);
    }
}
