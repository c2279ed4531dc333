//! Writes down once a second what the doors have noted: who was turned away, and when tokens were last used.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::driver::Ended;
use super::stopped;
use crate::service::Service;

const PERIOD: Duration = Duration::from_secs(1);

pub async fn run(service: Arc<Service>, mut stopping: watch::Receiver<bool>) -> Ended {
    loop {
        let over = tokio::select! {
            () = tokio::time::sleep(PERIOD) => false,
            () = stopped(&mut stopping) => true,
        };
        service.tell_guests().await;
        if over {
            return Ended::Shutdown;
        }
    }
}
