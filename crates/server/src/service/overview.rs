//! The health of the whole control plane, gathered; `core` judges it.

use parhelia_core::api::ServerInfo;
use parhelia_core::overview::{Fleet, Overview, health_rows};

use super::{ListQuery, Service, ServiceError};

impl Service {
    pub async fn overview(&self, server: ServerInfo) -> Result<Overview, ServiceError> {
        let listed = self.containers(ListQuery::default()).await?;
        let fleet =
            Fleet { by_health: health_rows(&listed.containers), totals: listed.totals.unwrap_or_default() };
        Ok(Overview::new(server, fleet, self.reconciler_status().await?))
    }
}
