//! Writes down once a second what the doors have noted: who was turned away, and when tokens were last used.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::driver::Ended;
use super::stopped;
use crate::service::Service;

const PERIOD: Duration = Duration::from_secs(1);

pub async fn run(service: Arc<Service>, mut stopping: watch::Receiver<bool>) -> Ended {
    let meter = service.metrics.loops.meter("guests", "");
    loop {
        let over = tokio::select! {
            () = tokio::time::sleep(PERIOD) => false,
            () = stopped(&mut stopping) => true,
        };
        let pass = meter.begin(service.clock.as_ref());
        let told = service.tell_guests().await;
        pass.end(told);
        if over {
            return Ended::Shutdown;
        }
    }
}
