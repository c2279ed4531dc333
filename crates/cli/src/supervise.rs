//! `parhelia supervise`: hands over to the process provider's supervisor, before any thread or runtime of
//! ours exists (a parent-death signal follows the thread that spawned).

use std::path::Path;

pub(crate) fn run(job_dir: &Path) -> i32 {
    // ENABLE when the supervisor exists: return parhelia_providers::supervise::run(job_dir);
    let _ = job_dir;
    1
}
