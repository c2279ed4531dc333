//! What a tool is. All about one is in one file: its name, its schemas, what it asks of its caller, what it does
//! and how it reads. Nothing here knows which tools there are.

use std::sync::Arc;

use futures::future::BoxFuture;
use parhelia_core::access::Access;
use parhelia_core::api::ServerInfo;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ToolAnnotations};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;

use super::schema;
use super::trouble::{Failed, Trouble};
use crate::http::{App, Door, Fault};
use crate::service::{Caller, Refusal, Service, denied};

/// Who asks, through which door, and whom.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    pub(super) app: App,
    pub(super) caller: Caller,
    pub(super) door: Door,
}

impl Asking {
    pub(super) fn service(&self) -> &Service {
        &self.app.service
    }

    pub(super) fn server_info(&self) -> ServerInfo {
        self.app.server_info()
    }

    /// Turns the caller away when it may not, and has that written down.
    pub(super) fn needs(&self, access: Access, what: &str) -> Result<(), Fault> {
        match denied(&self.caller, access) {
            None => Ok(()),
            Some(why) => {
                self.refused(&why, what);
                Err(Fault::forbidden(why))
            }
        }
    }

    pub(super) fn refused(&self, why: &str, what: &str) {
        self.app.service.refused(Refusal {
            reason: why.to_owned(),
            subject: Some(self.caller.subject.clone()),
            role: Some(self.caller.role),
            method: "POST".to_owned(),
            path: format!("/mcp {what}"),
            from: self.door.to_string(),
        });
    }
}

pub(super) trait Tool: 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const DESCRIPTION: &'static str;
    /// What is left out has its default; what is not known is refused by name.
    type Arguments: DeserializeOwned + Send + Sync;
    type Answer: Serialize + ToSchema + Send;

    fn input_schema() -> Value;

    /// True of the most that it can do.
    fn annotations() -> ToolAnnotations;

    /// What these arguments ask of the caller; and, for the events, what is asked for.
    fn access(arguments: &Self::Arguments) -> (Access, String);

    fn call(
        asking: &Asking,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Answer, Fault>> + Send;

    /// The answer for somebody who only reads.
    fn text(answer: &Self::Answer) -> String;
}

/// A tool whose types are forgotten: how it is described, and how it is called.
pub(super) struct Entry {
    pub(super) definition: rmcp::model::Tool,
    pub(super) call: fn(Asking, JsonObject) -> BoxFuture<'static, CallToolResult>,
}

impl Entry {
    pub(super) fn of<T: Tool>() -> Self {
        let object = |value: Value| match value {
            Value::Object(map) => Arc::new(map),
            _ => Arc::default(),
        };
        let definition = rmcp::model::Tool::new(T::NAME, T::DESCRIPTION, object(T::input_schema()))
            .with_title(T::TITLE)
            .with_raw_output_schema(object(schema::of_answer::<T::Answer>()))
            .with_annotations(T::annotations());
        Self { definition, call: |asking, arguments| Box::pin(run::<T>(asking, arguments)) }
    }
}

/// Reads the arguments, asks whether the caller may, calls, renders.
async fn run<T: Tool>(asking: Asking, arguments: JsonObject) -> CallToolResult {
    let answered = async {
        let arguments: T::Arguments = serde_path_to_error::deserialize(Value::Object(tidy(arguments)))
            .map_err(|e| Trouble::arguments(T::NAME, &T::input_schema(), &e))?;
        let (access, what) = T::access(&arguments);
        asking.needs(access, &what)?;
        Ok::<_, Trouble>(T::call(&asking, arguments).await?)
    };
    match answered.await {
        Ok(answer) => {
            let mut result = CallToolResult::success(vec![ContentBlock::text(T::text(&answer))]);
            result.structured_content = serde_json::to_value(&answer).ok();
            result
        }
        Err(trouble) => {
            let mut result = CallToolResult::error(vec![ContentBlock::text(trouble.to_string())]);
            result.structured_content = serde_json::to_value(Failed { error: trouble }).ok();
            result
        }
    }
}

/// Models write `null` for what they leave out, and `20.0` for 20, which JSON Schema calls an integer.
fn tidy(arguments: JsonObject) -> JsonObject {
    let whole = |value: Value| match value.as_f64() {
        Some(number) if value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15 => {
            Value::from(number as i64)
        }
        _ => value,
    };
    arguments.into_iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k, whole(v))).collect()
}

/// How many are wanted, within reason.
pub(super) fn bounded(name: &str, value: i64, most: i64) -> Result<i64, Fault> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(Fault::unprocessable(format!("{name} = {value} is out of range"), format!("give from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_models_write_is_read_as_they_mean_it() {
        let Value::Object(given) = json!({"a": null, "b": 20.0, "c": 1.5, "d": "x", "e": false}) else {
            panic!()
        };
        assert_eq!(Value::Object(tidy(given)), json!({"b": 20, "c": 1.5, "d": "x", "e": false}));
    }
}
