//! `parhelia_health`: the control plane as a whole.

use parhelia_core::access::Access;
use parhelia_core::overview::Overview;
use rmcp::model::ToolAnnotations;
use serde::Deserialize;
use serde_json::{Value, json};

use super::text;
use super::tool::{Asking, Tool};
use crate::http::Fault;

/// Ids in one row; its count is of all.
const NAMED: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    include_containers: bool,
    include_reconciler: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { include_containers: true, include_reconciler: true }
    }
}

pub(super) struct Health;

impl Tool for Health {
    const NAME: &'static str = "parhelia_health";
    const TITLE: &'static str = "Control plane health";
    const DESCRIPTION: &'static str = "Get control plane health status";
    type Arguments = Arguments;
    type Answer = Overview;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "include_containers": {
                    "type": "boolean",
                    "default": true
                },
                "include_reconciler": {
                    "type": "boolean",
                    "default": true
                }
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false)
    }

    fn access(_: &Arguments) -> (Access, String) {
        (Access::Viewer, Self::NAME.to_owned())
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<Overview, Fault> {
        let mut overview = asking.service().overview(asking.server_info()).await?;
        if !arguments.include_containers {
            overview.containers = None;
        }
        if !arguments.include_reconciler {
            overview.reconciler = None;
        }
        for row in overview.containers.iter_mut().flat_map(|fleet| &mut fleet.by_health) {
            row.containers.truncate(NAMED);
        }
        Ok(overview)
    }

    fn text(answer: &Overview) -> String {
        text::overview(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_schema_are_those_that_are_read() {
        let schema = Health::input_schema();
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        assert_eq!(schema["properties"]["include_containers"]["default"], nothing.include_containers);
        assert_eq!(schema["properties"]["include_reconciler"]["default"], nothing.include_reconciler);
    }
}
