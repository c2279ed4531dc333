//! Where the projection is, durably: numbers beside the places of the other readers of the history.
//!
//! `cursor` ≤ `intent`. Before a batch is sent its end is written as the intent, after it has arrived as the cursor; so
//! whoever goes on after a crash sends exactly the same events again, and the token of the batch is the same too.
//! `version` is above every version under which a row was ever sent, because it is written before: a request of a dead
//! or replaced server that arrives late carries a smaller one, and loses.

use parhelia_store::{ReaderMove, StoreError};

use crate::loops::Context;

const CURSOR: &str = "clickhouse:cursor";
const INTENT: &str = "clickhouse:intent";
const VERSION: &str = "clickhouse:version";
/// 1 once every session that there was has been sent.
const WHOLE: &str = "clickhouse:whole";
/// How often the history was sent anew: part of a batch's token, so that what was sent before is not taken for it.
const ERA: &str = "clickhouse:era";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) cursor: i64,
    pub(super) intent: i64,
    pub(super) version: i64,
    pub(super) whole: bool,
    pub(super) era: i64,
}

impl Places {
    pub(super) async fn load(context: &Context) -> Result<Self, StoreError> {
        let new = [CURSOR, INTENT, VERSION, WHOLE, ERA].map(|name| (name, 0));
        context.store.begin_readers(&context.fence, &new).await?;
        let mut places = Self::default();
        for (name, at) in context.store.readers().await? {
            match name.as_str() {
                CURSOR => places.cursor = at,
                INTENT => places.intent = at,
                VERSION => places.version = at,
                WHOLE => places.whole = at != 0,
                ERA => places.era = at,
                _ => {}
            }
        }
        Ok(places)
    }

    /// A version for rows that are about to be sent: later than every one before, and the time where that is later.
    pub(super) async fn reserve(
        &mut self,
        context: &Context,
        intent: Option<i64>,
    ) -> Result<i64, StoreError> {
        let version = context.clock.now().as_millisecond().max(self.version + 1);
        let next = Self { version, intent: intent.unwrap_or(self.intent), ..*self };
        self.go_to(context, next).await?;
        Ok(version)
    }

    /// Everything up to the intent has arrived.
    pub(super) async fn arrived(&mut self, context: &Context) -> Result<(), StoreError> {
        self.go_to(context, Self { cursor: self.intent, ..*self }).await
    }

    /// There was nothing to send up to here.
    pub(super) async fn pass_over(&mut self, context: &Context, to: i64) -> Result<(), StoreError> {
        self.go_to(context, Self { cursor: to, intent: to, ..*self }).await
    }

    /// The history is to be sent from its beginning.
    pub(super) async fn start_over(&mut self, context: &Context) -> Result<(), StoreError> {
        self.go_to(context, Self { cursor: 0, intent: 0, era: self.era + 1, ..*self }).await
    }

    pub(super) async fn set_whole(&mut self, context: &Context, whole: bool) -> Result<(), StoreError> {
        self.go_to(context, Self { whole, ..*self }).await
    }

    async fn go_to(&mut self, context: &Context, next: Self) -> Result<(), StoreError> {
        let pairs = [
            (CURSOR, self.cursor, next.cursor),
            (INTENT, self.intent, next.intent),
            (VERSION, self.version, next.version),
            (WHOLE, self.whole.into(), next.whole.into()),
            (ERA, self.era, next.era),
        ];
        let moves: Vec<ReaderMove> = pairs
            .into_iter()
            .filter(|(_, from, to)| from != to)
            .map(|(reader, from, to)| ReaderMove { reader: reader.to_owned(), from, to })
            .collect();
        if !moves.is_empty() {
            context.store.move_readers(&context.fence, &moves).await?;
        }
        *self = next;
        Ok(())
    }
}
