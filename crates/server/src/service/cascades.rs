//! Definitions that were read lately, so that a long one is not parsed for each of its steps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use parhelia_core::cascade::Cascade;

/// How many are kept; the one used longest ago goes first.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Cascades {
    recent: Mutex<VecDeque<(String, Arc<Cascade>)>>,
}

impl Cascades {
    pub(super) fn get(&self, hash: &str) -> Option<Arc<Cascade>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let place = recent.iter().position(|(known, _)| known == hash)?;
        let found = recent.remove(place)?;
        let cascade = found.1.clone();
        recent.push_front(found);
        Some(cascade)
    }

    pub(super) fn put(&self, hash: &str, cascade: Arc<Cascade>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.iter().all(|(known, _)| known != hash) {
            recent.push_front((hash.to_owned(), cascade));
            recent.truncate(KEPT);
        }
    }
}
