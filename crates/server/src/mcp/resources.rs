//! Resources: a container and its events, by address; and the live ones, listed.

use parhelia_core::access::Access;
use parhelia_core::ids::ContainerId;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use serde::Serialize;

use super::tool::Asking;
use super::trouble::Trouble;
use crate::http::Fault;
use crate::service::{EventQuery, ListQuery};

const SCHEME: &str = "parhelia://";
const JSON: &str = "application/json";
const PAGE: usize = 100;
/// The latest events in a resource; the tool goes further back.
const EVENTS: i64 = 100;

/// Something that can be read.
#[derive(Debug, PartialEq, Eq)]
enum Address<'a> {
    Container(&'a str),
    Events(&'a str),
}

impl<'a> Address<'a> {
    fn parse(uri: &'a str) -> Option<Self> {
        let id = uri.strip_prefix(SCHEME)?.strip_prefix("containers/")?;
        let (id, address): (_, fn(&'a str) -> Self) = match id.strip_suffix("/events") {
            Some(id) => (id, Address::Events),
            None => (id, Address::Container),
        };
        (!id.is_empty() && !id.contains('/')).then(|| address(id))
    }
}

pub(super) fn templates() -> ListResourceTemplatesResult {
    ListResourceTemplatesResult::with_all_items(vec![
        ResourceTemplate::new(format!("{SCHEME}containers/{{id}}"), "container")
            .with_title("Container")
            .with_description("One container: state, health, usage, cost; by its id or a unique prefix of it")
            .with_mime_type(JSON),
        ResourceTemplate::new(format!("{SCHEME}containers/{{id}}/events"), "container_events")
            .with_title("Events of a container")
            .with_description("Its latest events, the newest last")
            .with_mime_type(JSON),
    ])
}

/// Those that are not terminated, a page at a time. Pages are counted from the newest.
pub(super) async fn list(asking: &Asking, cursor: Option<&str>) -> Result<ListResourcesResult, Trouble> {
    asking.needs(Access::Viewer, "resources/list")?;
    let before = match cursor {
        None => None,
        Some(text) => Some(ContainerId::parse(text).map_err(|_| {
            Fault::unprocessable("that is not a cursor of this list", "begin again without a cursor")
        })?),
    };
    let before = before.map(|id| id.to_string());
    let query = ListQuery { limit: Some(PAGE), before, ..ListQuery::default() };
    let found = asking.service().containers(query).await.map_err(Fault::from)?;
    let resource = |view: &parhelia_core::api::ContainerView| {
        let record = &view.record;
        let what = record.name.as_deref().or(view.task_title.as_deref()).or(view.task.as_deref());
        let resource = Resource::new(format!("{SCHEME}containers/{}", record.id), record.id.as_str())
            .with_description(format!("{} and {}, on {}", record.state, view.health, record.provider))
            .with_mime_type(JSON);
        match what {
            Some(title) => resource.with_title(title),
            None => resource,
        }
    };
    let mut listed = ListResourcesResult::with_all_items(found.containers.iter().map(resource).collect());
    listed.next_cursor = found.next.map(|id| id.to_string());
    Ok(listed)
}

pub(super) async fn read(asking: &Asking, uri: &str) -> Result<ReadResourceResult, Trouble> {
    asking.needs(Access::Viewer, "resources/read")?;
    let service = asking.service();
    let text = match Address::parse(uri) {
        Some(Address::Container(id)) => json(&service.container(id).await.map_err(Fault::from)?)?,
        Some(Address::Events(id)) => {
            let query = EventQuery {
                container: Some(id.to_owned()),
                limit: Some(EVENTS),
                newest_first: true,
                ..EventQuery::default()
            };
            let mut found = service.events(query).await.map_err(Fault::from)?;
            found.events.sort_by_key(|event| event.id);
            json(&found)?
        }
        None => {
            let shown: String = uri.chars().take(200).collect();
            return Err(Trouble {
                code: "not_found".into(),
                message: format!("there is no resource '{shown}'"),
                fix: format!("read {SCHEME}containers/ID or {SCHEME}containers/ID/events"),
            });
        }
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(JSON)]))
}

fn json<T: Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|e| Fault::internal(format!("the answer cannot be written: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_thing() {
        assert_eq!(Address::parse("parhelia://containers/c-01"), Some(Address::Container("c-01")));
        assert_eq!(Address::parse("parhelia://containers/c-01/events"), Some(Address::Events("c-01")));
        for uri in [
            "parhelia://containers/",
            "parhelia://containers//events",
            "parhelia://containers/a/b",
            "parhelia://tokens/t",
            "file:///etc/passwd",
            "",
        ] {
            assert_eq!(Address::parse(uri), None, "{uri}");
        }
    }
}
