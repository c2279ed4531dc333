//! Work that can be left in the middle. Every call to the store or the provider takes a breath before and
//! after its effect; whoever drives the work may drop it there (a SIGKILL), or leave it for later (a SIGSTOP).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::coop::unconstrained;

/// Lets go once: a place to die.
pub(crate) async fn breath() {
    let mut rested = false;
    poll_fn(|cx| {
        if rested {
            return Poll::Ready(());
        }
        rested = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Rung by whoever wants to be polled again.
#[derive(Debug, Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) enum Progress<T> {
    Done(T),
    /// It has taken all the breaths that it was given.
    OutOfBreath,
    /// Only time can help: a provider hangs.
    Waiting,
}

pub(crate) struct Work<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<T> std::fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

impl<T> Work<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        // Tokio's timers count polls and refuse after some; here nobody else is kept waiting.
        Self { future: Box::pin(unconstrained(future)), bell, waker }
    }

    /// Goes on for that many breaths.
    pub(crate) fn go_on(&mut self, mut breaths: u64) -> Progress<T> {
        loop {
            self.bell.0.store(false, Ordering::Relaxed);
            match self.future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(done) => return Progress::Done(done),
                Poll::Pending if !self.bell.0.load(Ordering::Relaxed) => return Progress::Waiting,
                Poll::Pending if breaths == 0 => return Progress::OutOfBreath,
                Poll::Pending => breaths -= 1,
            }
        }
    }
}
