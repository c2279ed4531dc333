//! Randomness, read at the edge: new ids and tokens. The simulation brings its own.

use std::sync::Mutex;

use parhelia_core::Timestamp;
use parhelia_core::ids::{
    CheckpointId, ContainerId, DeliveryId, SessionId, SignalId, TaskId, TokenId, WaitId, WorkerId,
};

pub trait Entropy: Send + Sync + std::fmt::Debug {
    fn bits(&self) -> u64;

    fn container_id(&self, now: Timestamp) -> ContainerId {
        ContainerId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn session_id(&self, now: Timestamp) -> SessionId {
        SessionId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn task_id(&self, now: Timestamp) -> TaskId {
        TaskId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn worker_id(&self, now: Timestamp) -> WorkerId {
        WorkerId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn wait_id(&self, now: Timestamp) -> WaitId {
        WaitId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn signal_id(&self, now: Timestamp) -> SignalId {
        SignalId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn checkpoint_id(&self, now: Timestamp) -> CheckpointId {
        CheckpointId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn token_id(&self, now: Timestamp) -> TokenId {
        TokenId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    fn delivery_id(&self, now: Timestamp) -> DeliveryId {
        DeliveryId::mint(now.as_millisecond().max(0) as u64, self.bits())
    }

    /// A random (version 4) uuid.
    fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bits().to_be_bytes());
        bytes[8..].copy_from_slice(&self.bits().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// 256 random bits, in hexadecimal.
    fn token(&self) -> String {
        let words: [u64; 4] = std::array::from_fn(|_| self.bits());
        words.iter().map(|w| format!("{w:016x}")).collect()
    }
}

/// The operating system's random numbers.
#[derive(Debug, Default)]
pub struct SystemEntropy {
    /// Counts on from a random start, should the system ever refuse: ids stay unique within the process.
    fallback: Mutex<u64>,
}

impl Entropy for SystemEntropy {
    fn bits(&self) -> u64 {
        getrandom::u64().unwrap_or_else(|_| {
            let mut n = self.fallback.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *n
        })
    }

    fn token(&self) -> String {
        let mut bytes = [0; 32];
        match getrandom::fill(&mut bytes) {
            Ok(()) => hex::encode(bytes),
            // A token that can be guessed is worse than none: nobody can present this one.
            Err(_) => String::new(),
        }
    }
}
