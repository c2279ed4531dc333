//! `parhelia_inbox`: what waits for a person, and answers.

use parhelia_core::access::Access;
use parhelia_core::session::api::{AnswerReport, AnswerWaits, Inbox, Verdict};
use parhelia_core::word_enum;
use rmcp::model::ToolAnnotations;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::text;
use super::tool::{Asking, Tool};
use crate::http::Fault;

word_enum!(
    Action {
        List = "list",
        Answer = "answer",
        Approve = "approve",
        Deny = "deny",
    }
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Arguments {
    action: Action,
    ids: Vec<String>,
    answer: Option<Value>,
    text: Option<String>,
    reason: Option<String>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { action: Action::List, ids: Vec::new(), answer: None, text: None, reason: None }
    }
}

/// What came of the action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(super) enum InboxAnswer {
    /// What has waited longest first; `fits` says what an answer must be.
    List {
        inbox: Inbox,
    },
    /// Each is answered or refused by itself; the first answer to a wait holds.
    Answer {
        report: AnswerReport,
    },
    Approve {
        report: AnswerReport,
    },
    Deny {
        report: AnswerReport,
    },
}

pub(super) struct InboxTool;

impl Tool for InboxTool {
    const NAME: &'static str = "parhelia_inbox";
    const TITLE: &'static str = "Inbox";
    const DESCRIPTION: &'static str =
        "List what waits for a person over all sessions and jobs, and answer, approve or deny it";
    type Arguments = Arguments;
    type Answer = InboxAnswer;

    fn input_schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["list", "answer", "approve", "deny"],
                    "default": "list"
                },
                "ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "IDs of waits, or unique prefixes of them (required for answer/approve/deny)"
                },
                "answer": {"description": "The answer as JSON: true, an option, a list of options, a text, a number"},
                "text": {
                    "type": "string",
                    "description": "Instead of answer: what a person said, read as what the question wants (yes, an option, 4)"
                },
                "reason": {"type": "string", "description": "Why, for the history"}
            }
        })
    }

    fn annotations() -> ToolAnnotations {
        // Of `deny`, which fails what asked; an answer cannot be taken back.
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(false)
    }

    fn access(arguments: &Arguments) -> (Access, String) {
        let access = if arguments.action == Action::List { Access::Viewer } else { Access::Operator };
        (access, format!("{} {}", Self::NAME, arguments.action))
    }

    async fn call(asking: &Asking, arguments: Arguments) -> Result<InboxAnswer, Fault> {
        let service = asking.service();
        let verdict = match arguments.action {
            Action::List => return Ok(InboxAnswer::List { inbox: service.inbox().await? }),
            Action::Answer => Verdict::Answer,
            Action::Approve => Verdict::Approve,
            Action::Deny => Verdict::Deny,
        };
        let Arguments { ids, answer, text, reason, .. } = arguments;
        if ids.is_empty() {
            return Err(Fault::unprocessable(
                format!("ids is required for {}", arguments.action),
                "give the ids that action=list shows",
            ));
        }
        let request = AnswerWaits { ids, verdict, answer, text, choices: None, reason };
        let report = service.answer_waits(request, &asking.caller).await?;
        Ok(match verdict {
            Verdict::Answer => InboxAnswer::Answer { report },
            Verdict::Approve => InboxAnswer::Approve { report },
            Verdict::Deny => InboxAnswer::Deny { report },
        })
    }

    fn text(answer: &InboxAnswer) -> String {
        match answer {
            InboxAnswer::List { inbox } => text::inbox(inbox),
            InboxAnswer::Answer { report }
            | InboxAnswer::Approve { report }
            | InboxAnswer::Deny { report } => text::answers(report),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_and_defaults_of_the_schema_are_those_that_are_read() {
        let schema = InboxTool::input_schema();
        assert_eq!(schema["properties"]["action"]["enum"], json!(Action::ALL));
        let nothing: Arguments = serde_json::from_str("{}").unwrap();
        assert_eq!(schema["properties"]["action"]["default"], json!(nothing.action));
        for action in Action::ALL {
            let arguments = Arguments { action: *action, ..Arguments::default() };
            assert_eq!(InboxTool::access(&arguments).0 == Access::Viewer, *action == Action::List);
        }
    }
}
