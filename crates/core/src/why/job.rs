//! Why a job is as it is: what is recorded of it, then all that its container has to say.

use jiff::Timestamp;

use super::{OPERATOR, Page, Why, ago};
use crate::job::{Job, JobActivity, JobStatus};

/// `container` is the page of its container, with the evidence of its files.
pub fn job(job: &Job, container: Why, now: Timestamp) -> Why {
    let status = job.status;
    let reason = job.status_reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let state = match &job.waiting_reason {
        Some(asks) if !status.is_over() => format!("It is {status} and needs a person: {asks}."),
        _ => format!("It is {status}{reason}."),
    };
    let mut page = Page::new(job.id.to_string(), "job", now, state);
    page.evidence("status", format!("{status} since {}{reason}", ago(job.status_at, now)));
    let activity = match &job.waiting_since {
        Some(since) => format!("{} since {}", job.activity, ago(*since, now)),
        None => job.activity.to_string(),
    };
    page.evidence("activity", activity);
    let name = job.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
    page.evidence(
        "asked for",
        format!("{name}{}, {} by {}", job.engine, ago(job.created_at, now), job.created_by),
    );
    if let Some(origin) = job.origin_id {
        page.evidence("continues", origin.to_string());
    }
    if let Some(at) = job.heartbeat_at {
        page.evidence("noted heartbeat", ago(at, now));
    }
    if let Some(at) = job.reattached_at {
        let times = super::times(job.reattached_count);
        page.evidence("reattached", format!("{times}, last {}", ago(at, now)));
    }
    if let Some(session) = &job.agent_session {
        page.evidence("agent session", session);
    }
    if let Some(code) = job.exit_code {
        page.evidence("exit code", code.to_string());
    }
    page.evidence(format!("container {}", job.container_id), &container.state);
    page.0.evidence.extend(container.evidence);
    page.0.waiting = container.waiting;
    if job.activity == JobActivity::Waiting && !status.is_over() {
        page.wait("a person", None);
        page.remedy(OPERATOR, "answers it", format!("parhelia jobs attach {}", job.id));
    }
    match status {
        JobStatus::Failed | JobStatus::Dead | JobStatus::Finished => {
            page.remedy(
                OPERATOR,
                "goes on with it, in a new job",
                format!("parhelia jobs resume {}", job.id),
            );
        }
        JobStatus::Stale => {
            page.remedy(OPERATOR, "sees what it last said", format!("parhelia jobs logs {}", job.id));
            page.remedy(OPERATOR, "ends it", format!("parhelia jobs cancel {}", job.id));
        }
        JobStatus::Pending | JobStatus::Fresh | JobStatus::Reattached => {}
    }
    page.0.remedies.extend(container.remedies);
    page.0.events = container.events;
    page.0
}
