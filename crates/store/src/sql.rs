//! Every statement of the store, each from its own file in `sql/`. Files are shared by all databases and
//! written with `$1` parameters; SQLite gets them as `?1`. A line that begins with `-- postgres:` is a comment to
//! SQLite and SQL to PostgreSQL. A few have a second form in `sql/batch/` that PostgreSQL runs for many steps
//! at once. The registry lets a test prepare every one.

use std::sync::OnceLock;

/// One statement. `index` is its place in [`ALL`], so that a prepared one is found without hashing its text.
#[derive(Debug)]
pub struct Sql {
    pub index: usize,
    pub name: &'static str,
    pub text: &'static str,
    /// What PostgreSQL runs for a run of steps of this statement: each parameter is an array.
    pub batch: Option<&'static str>,
    sqlite: OnceLock<String>,
    postgres: OnceLock<String>,
}

impl Sql {
    const fn new(index: usize, name: &'static str, text: &'static str, batch: Option<&'static str>) -> Self {
        Self { index, name, text, batch, sqlite: OnceLock::new(), postgres: OnceLock::new() }
    }

    /// The text as PostgreSQL wants it: without the comments, with the lines that are for it alone.
    pub fn postgres(&self) -> &str {
        self.postgres.get_or_init(|| for_postgres(self.text))
    }

    /// The text as SQLite wants it: without the comments, parameters as `?1`.
    pub fn sqlite(&self) -> &str {
        self.sqlite.get_or_init(|| for_sqlite(self.text))
    }
}

const FOR_POSTGRES: &str = "-- postgres:";

fn for_postgres(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.trim_start() {
            special if special.starts_with(FOR_POSTGRES) => out.push_str(&special[FOR_POSTGRES.len()..]),
            comment if comment.starts_with("--") => continue,
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

fn for_sqlite(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.trim_start().starts_with("--")) {
        out.push_str(&line.replace('$', "?"));
        out.push('\n');
    }
    out
}

macro_rules! batch {
    ($file:literal) => {
        None
    };
    ($file:literal batched) => {
        Some(include_str!(concat!("../sql/batch/", $file, ".sql")))
    };
}

macro_rules! statements {
    ($($name:ident = $file:literal $($batched:ident)?),+ $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place { $($name),+ }
        $(pub static $name: Sql =
            Sql::new(Place::$name as usize, $file, include_str!(concat!("../sql/", $file, ".sql")),
                batch!($file $($batched)?));)+
        pub static ALL: &[&Sql] = &[$(&$name),+];
    };
}

statements! {
    ALERT_COUNTS = "alert_counts",
    ALERT_SILENT = "alert_silent",
    ALERT_TROUBLE = "alert_trouble",
    APPLY_HEALTH = "apply_health",
    CLAIM_CREATE = "claim_create",
    STILL_WANTED = "still_wanted",
    CONTAINER = "container",
    CONTAINER_BY_SANDBOX = "container_by_sandbox",
    CONTAINER_COUNTS = "container_counts",
    CONTAINER_IDS = "container_ids",
    CONTAINER_INSERT = "container_insert",
    CONTAINERS = "containers",
    CONTAINERS_ACTIVE = "containers_active",
    CONTAINERS_OF_TASK = "containers_of_task",
    CONTAINERS_SILENT = "containers_silent",
    CONTAINERS_TERMINATED = "containers_terminated",
    CYCLE_INSERT = "cycle_insert",
    CYCLE_OF_PROVIDER = "cycle_of_provider",
    CYCLES = "cycles",
    CYCLES_DELETE = "cycles_delete",
    DATABASE_TIME = "database_time",
    DELIVERIES_DELETE = "deliveries_delete",
    DELIVERIES_DROP = "deliveries_drop",
    DELIVERIES_OPEN = "deliveries_open",
    DELIVERIES_PENDING = "deliveries_pending",
    DELIVERIES_RESUME = "deliveries_resume",
    DELIVERY_CLAIM = "delivery_claim",
    DELIVERY_INSERT = "delivery_insert",
    DELIVERY_RECORD = "delivery_record",
    DELIVERY_RELEASE = "delivery_release",
    DESIRE_TERMINATION = "desire_termination",
    EVENT = "event" batched,
    EVENTS_AFTER = "events_after",
    EVENTS_BEFORE = "events_before",
    EVENTS_CONTAINER_NEWEST = "events_container_newest",
    EVENTS_CONTAINER_OLDEST = "events_container_oldest",
    EVENTS_DELETE = "events_delete",
    EVENTS_NEWEST = "events_newest",
    EVENTS_OLDEST = "events_oldest",
    EVENTS_TASK_NEWEST = "events_task_newest",
    EVENTS_TASK_OLDEST = "events_task_oldest",
    EVENTS_TYPE_NEWEST = "events_type_newest",
    EVENTS_TYPE_OLDEST = "events_type_oldest",
    FIRST_EVENT = "first_event",
    FOREIGN = "foreign",
    FOREIGN_DELETE = "foreign_delete",
    FOREIGN_GONE = "foreign_gone",
    FOREIGN_KNOWN = "foreign_known",
    FOREIGN_UPSERT = "foreign_upsert",
    GUARD = "guard",
    GUARD_OWNER = "guard_owner",
    HASTEN_TERMINATION = "hasten_termination",
    STILL_SILENT = "still_silent",
    HEARTBEAT_HISTORY = "heartbeat_history",
    HEARTBEAT_HOURS = "heartbeat_hours",
    HEARTBEAT_HOURS_DELETE = "heartbeat_hours_delete",
    HEARTBEAT_INSERT = "heartbeat_insert" batched,
    HEARTBEAT_TOUCH = "heartbeat_touch" batched,
    HEARTBEAT_WORKERS = "heartbeat_workers" batched,
    HEARTBEATS_DELETE = "heartbeats_delete",
    HEARTBEATS_FOLD = "heartbeats_fold",
    HISTORY_END = "history_end",
    HISTORY_PAGE = "history_page",
    INSTANCE_ADOPT = "instance_adopt",
    INSTANCE_CREATE = "instance_create",
    INSTANCE_ENSURE = "instance_ensure",
    INSTANCE_SELF = "instance_self",
    INSTANCES = "instances",
    INSTANCES_OURS = "instances_ours",
    JOB = "job",
    JOB_CLEANED = "job_cleaned",
    JOB_COUNTS = "job_counts",
    JOB_INSERT = "job_insert",
    JOB_MOVES = "job_moves",
    JOB_NOTE = "job_note",
    JOB_OF_CONTAINER = "job_of_container",
    JOBS = "jobs",
    JOBS_WATCHED = "jobs_watched",
    JOBS_SHOWN = "jobs_shown",
    SESSION_INSERT = "session_insert",
    CASCADE_KEEP = "cascade_keep",
    SESSION_VALUES_INSERT = "session_values_insert",
    SESSION_VALUES = "session_values",
    SESSION_OUTPUTS = "session_outputs",
    SESSION_ADVANCE = "session_advance",
    SESSION_CANCEL = "session_cancel",
    SESSION_TAKE = "session_take",
    OWNER_HOME = "owner_home",
    OWNERS_BESIDE = "owners_beside",
    OWNER_GONE = "owner_gone",
    OWNER_EXPIRE = "owner_expire",
    SESSIONS_OWNERLESS = "sessions_ownerless",
    SESSIONS_OWNED = "sessions_owned",
    SESSIONS_UNFINISHED = "sessions_unfinished",
    PHASE_BEGIN = "phase_begin",
    PHASE_END = "phase_end",
    PHASE_COPY = "phase_copy",
    SESSION_TASK_INSERT = "session_task_insert",
    SESSION_TASK_COPY = "session_task_copy",
    SESSION_TASK_START = "session_task_start",
    SESSION_TASK_VERIFY = "session_task_verify",
    SESSION_TASK_END = "session_task_end",
    SESSION_TASKS_DROP = "session_tasks_drop",
    SESSION_TRIAL = "session_trial",
    SESSION_TRIAL_BEGIN = "session_trial_begin",
    SESSION_TRIAL_END = "session_trial_end",
    ATTEMPT_INSERT = "attempt_insert",
    ATTEMPT_VERIFY = "attempt_verify",
    ATTEMPT_END = "attempt_end",
    ATTEMPT_MOVES = "attempt_moves",
    ATTEMPTS_OPEN = "attempts_open",
    SESSION_TASKS_RETRY = "session_tasks_retry",
    SESSION_TASKS_IN = "session_tasks_in",
    SESSION_WAITS_NOW = "session_waits_now",
    WAIT_INSERT = "wait_insert",
    WAIT_CLOSE = "wait_close",
    SIGNAL_TARGETS_INSERT = "signal_targets_insert",
    SIGNAL_NEXT = "signal_next",
    SIGNAL_DELIVER = "signal_deliver",
    SIGNAL_DELIVERY_INSERT = "signal_delivery_insert",
    CHECKPOINT_INSERT = "checkpoint_insert",
    SESSION_OF_ENDED = "session_of_ended",
    SESSION_WORKERS = "session_workers",
    SESSION_CLAIMABLE = "session_claimable",
    PHASE_CLAIMABLE = "phase_claimable",
    SESSIONS_OF_ORIGIN = "sessions_of_origin",
    SIGNALS_RELEASED = "signals_released",
    PHASE_IS_QUIET = "phase_is_quiet",
    PHASE_IS_DONE = "phase_is_done",
    SESSION_IS_QUIET = "session_is_quiet",
    SESSION_TASKS_RESTING = "session_tasks_resting",
    SESSION_CHECKPOINT = "session_checkpoint",
    ATTEMPT_OUTPUT = "attempt_output",
    SESSION_CHILDREN = "session_children",
    SESSIONS_OF_CONTAINERS = "sessions_of_containers",
    SESSIONS_WAITING_FOR = "sessions_waiting_for",
    ATTEMPT_SAID = "attempt_said",
    ATTEMPTS_OF_TASKS = "attempts_of_tasks",
    CASCADE_BY_HASH = "cascade_by_hash",
    CHECKPOINT_BY_ID = "checkpoint_by_id",
    EVENTS_SESSION_NEWEST = "events_session_newest",
    EVENTS_SESSION_OLDEST = "events_session_oldest",
    INBOX = "inbox",
    INBOX_JOBS = "inbox_jobs",
    SESSION_CHECKPOINTS = "session_checkpoints",
    SESSION_COUNTS = "session_counts",
    SESSION_IDS = "session_ids",
    SESSION_NOT_OVER = "session_not_over",
    SESSION_PHASE_COUNTS = "session_phase_counts",
    SESSION_SHOWN = "session_shown",
    SESSION_TASK_COUNTS = "session_task_counts",
    SESSION_TASKS = "session_tasks",
    SESSION_TASKS_OF_STATE = "session_tasks_of_state",
    SESSIONS = "sessions",
    SESSIONS_NAMED = "sessions_named",
    SESSIONS_OF_PARENT = "sessions_of_parent",
    SESSIONS_OPEN = "sessions_open",
    SIGNAL_BY_ID = "signal_by_id",
    SIGNAL_INSERT = "signal_insert",
    SIGNALS = "signals",
    SIGNALS_PENDING = "signals_pending",
    WAIT = "wait",
    WAIT_ANSWER = "wait_answer",
    WAIT_COUNTS = "wait_counts",
    WAIT_IDS = "wait_ids",
    WAITS_OF_SESSION = "waits_of_session",
    SESSION = "session",
    SESSION_COUNT = "session_count",
    SESSIONS_BEATING_PAGE = "sessions_beating_page",
    SESSIONS_BY_IDS = "sessions_by_ids",
    SESSIONS_PAGE = "sessions_page",
    SESSION_PHASES = "session_phases",
    SESSION_TASK = "session_task",
    SESSION_TASKS_PENDING = "session_tasks_pending",
    STARTUP_BEFORE = "startup_before",
    STARTUP_BEGIN = "startup_begin",
    STARTUP_NOTE = "startup_note",
    STARTUPS = "startups",
    STARTUPS_DELETE = "startups_delete",
    LAST_EVENT = "last_event",
    LEADERSHIP = "leadership",
    LEADERSHIP_RELEASE = "leadership_release",
    LEADERSHIP_RENEW = "leadership_renew",
    LEADERSHIP_TAKE = "leadership_take",
    LIVE_COUNT = "live_count",
    OBSERVE = "observe",
    OLDEST_RUNNING = "oldest_running",
    OWNER_END = "owner_end",
    OWNER_EPOCH = "owner_epoch",
    OWNER_LEASES = "owner_leases",
    OWNER_REGISTER = "owner_register",
    OWNER_RENEW = "owner_renew",
    OWNERS = "owners",
    OWNERS_SUPERSEDE = "owners_supersede",
    PATIENTS = "patients",
    PROBE = "probe",
    PROVIDER_MEMORY = "provider_memory",
    PROVIDER_SAVE = "provider_save",
    READER_ADVANCE = "reader_advance",
    READER_BEGIN = "reader_begin",
    READER_FORGET = "reader_forget",
    READERS = "readers",
    RECORD_CREATED = "record_created",
    STOP_ATTEMPT = "stop_attempt",
    STOP_FAILED = "stop_failed",
    STOP_FIRST_SEEN = "stop_first_seen",
    STOP_SENT = "stop_sent",
    TASK = "task",
    TASK_ENSURE = "task_ensure",
    TOKEN_BY_HASH = "token_by_hash",
    TOKEN_INSERT = "token_insert",
    TOKEN_REVOKE = "token_revoke",
    TOKEN_USED = "token_used",
    TOKENS = "tokens",
    TOKENS_DELETE = "tokens_delete",
    TOKENS_OF_CONTAINER_REVOKE = "tokens_of_container_revoke",
    TRACKED = "tracked",
    TRACKED_BY_IDS = "tracked_by_ids",
    TRACKED_BY_SANDBOXES = "tracked_by_sandboxes",
    VITALS_INSERT = "vitals_insert",
    WANT = "want",
    WORKER = "worker",
    WORKER_INSERT = "worker_insert",
    WORKERS_HEALTH = "workers_health",
    WORKERS_TERMINATE = "workers_terminate",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_holds_every_file_once_and_each_begins_with_a_comment() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/sql");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "batch")
            .map(|name| name.trim_end_matches(".sql").to_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|sql| sql.name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
        for (i, sql) in ALL.iter().enumerate() {
            assert_eq!(sql.index, i);
            assert!(sql.text.starts_with("-- "), "{} does not say what it is for", sql.name);
        }
    }

    #[test]
    fn parameters_are_rewritten_and_comments_dropped() {
        let both = "-- why\nSELECT $1\n  -- postgres: FOR SHARE\n";
        assert_eq!(
            (for_sqlite(both).as_str(), for_postgres(both).as_str()),
            ("SELECT ?1\n", "SELECT $1\n FOR SHARE\n")
        );
        assert_eq!(for_sqlite("-- $1 is it\nSELECT $1,\n  $12\n"), "SELECT ?1,\n  ?12\n");
    }
}
