//! Alerts: what became of them, and trying one out.

use parhelia_core::alert::{AlertList, AlertTest, AlertView, Verdict, judge};
use parhelia_core::notice::Notice;

use super::{Caller, Service, ServiceError};

impl Service {
    /// Every configured alert and what its deliveries amount to.
    pub async fn alerts(&self) -> Result<AlertList, ServiceError> {
        let mut alerts = Vec::new();
        for post in &self.posts {
            let counts = self.store.alert_counts(&post.alert.name).await?;
            alerts.push(AlertView::of(&post.alert, counts));
        }
        Ok(AlertList { alerts })
    }

    /// Sends a notice that is only a test, now and once, and tells what the receiver said. Nothing is recorded: it is
    /// no event.
    pub async fn test_alert(&self, name: &str, by: &Caller) -> Result<AlertTest, ServiceError> {
        let Some(post) = self.posts.iter().find(|post| post.alert.name == name) else {
            return Err(ServiceError::NotFound {
                what: "alert",
                id: name.to_owned(),
                fix: "'parhelia alerts list' shows what is configured; a change needs a restart of the server",
            });
        };
        let (now, began) = (self.clock.now(), self.clock.monotonic());
        let delivery = self.entropy.delivery_id(now).to_string();
        let notice = Notice::test(name, &by.subject, now);
        let reply = post.send(&notice, &delivery, 1, now).await;
        let took = self.clock.monotonic().saturating_sub(began);
        let ok = judge(reply.status, 1, &[], now) == Verdict::Delivered;
        Ok(AlertTest {
            alert: name.to_owned(),
            delivery,
            ok,
            status: reply.status,
            error: (!ok).then(|| reply.trouble()),
            answer: reply.text,
            duration_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
        })
    }
}
