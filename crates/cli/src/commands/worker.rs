//! `parhelia worker`: claims one task of its session after the other, runs each as a child of its own, and says what became
//! of it. It is the supervisor of its tasks: they end with it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use parhelia_core::session::TaskRow;
use parhelia_core::session::api::{ClaimTask, Claimed, ClaimedTask, TaskResult};
use parhelia_core::session::plan::LARGEST_OUTPUT_BYTES;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::args::WorkerArgs;
use crate::context::Context;
use crate::error::{CliError, Exit, Result};

/// While there is nothing to do.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Without a server for so long, nobody needs us.
const GIVE_UP: u32 = 300;
/// What is kept of what a task writes; it can be a value no longer than that.
const KEPT: usize = LARGEST_OUTPUT_BYTES;
/// What a request has room for, beside the rest of it.
const SENT: usize = 3 << 19;
/// For what its task left behind to let go of its output.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

pub(crate) async fn run(ctx: &Context, args: WorkerArgs) -> Result<()> {
    let client = ctx.client_of_running()?;
    let claims = format!("/sessions/{}/claims", args.session);
    let request = ClaimTask { worker_id: args.worker.clone() };
    let (mut pause, mut failures) = (FIRST_PAUSE, 0);
    loop {
        let claimed: Claimed = match client.post_once(&claims, &request).await {
            Ok(claimed) => claimed,
            Err(error) if error.exit == Exit::NotFound => return Err(error),
            Err(error) => {
                failures += 1;
                if failures > GIVE_UP {
                    return Err(error);
                }
                tokio::time::sleep(LONGEST_PAUSE).await;
                continue;
            }
        };
        failures = 0;
        match claimed.task {
            Some(task) => {
                pause = FIRST_PAUSE;
                let result = carry_out(&task, &args.worker).await;
                report(&client, &task, &result).await?;
            }
            None if claimed.finished => return Ok(()),
            None => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Said until it is heard; a refusal is an answer too.
async fn report(client: &crate::client::Client, task: &ClaimedTask, result: &TaskResult) -> Result<()> {
    let path = format!("/tasks/{}/attempts/{}/result", task.task_id, task.attempt);
    for _ in 0..GIVE_UP {
        let heard: Result<TaskRow> = client.post_once(&path, result).await;
        match heard {
            Ok(_) => return Ok(()),
            // It came too late, or what it is about is gone.
            Err(error) if matches!(error.exit, Exit::NotFound | Exit::Refused) => {
                eprintln!("the report on {} was refused: {}", task.key, error.message);
                return Ok(());
            }
            // Nobody will ever take it: who asked again would be given the same task again.
            Err(error) if error.exit == Exit::Usage => return Err(error),
            Err(_) => tokio::time::sleep(LONGEST_PAUSE).await,
        }
    }
    Err(CliError::failure("unheard", format!("nobody heard what became of {}", task.key)))
}

async fn carry_out(task: &ClaimedTask, worker: &str) -> TaskResult {
    let limit = task.timeout_seconds.map(Duration::from_secs);
    let (exit_code, timed_out, mut output) = one(task, &task.command, limit).await;
    let mut verify_exit_code = None;
    if let Some(verify) = task.verify.as_ref().filter(|_| exit_code == Some(0)) {
        let (code, _, said) = one(task, verify, limit).await;
        verify_exit_code = Some(code.unwrap_or(-1));
        // Why it was refused. What was accepted stays what the task itself wrote: its values are made of it.
        if code != Some(0) {
            output.extend_from_slice(b"(verify)\n");
            output.extend(said);
        }
    }
    let mut truncated = output.len() > KEPT;
    if truncated {
        output.drain(..output.len() - KEPT);
    }
    let mut output = String::from_utf8_lossy(&output).into_owned();
    // As it is sent: what is no text can be several times as long.
    while serde_json::to_string(&output).is_ok_and(|sent| sent.len() > SENT) {
        truncated = true;
        let half = output.len() / 2;
        let half = (half..output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(output.len());
        output.drain(..half);
    }
    TaskResult { worker_id: worker.to_owned(), exit_code, verify_exit_code, timed_out, output, truncated }
}

/// Its exit code, whether it took too long, and what it wrote.
async fn one(
    task: &ClaimedTask,
    command: &[String],
    limit: Option<Duration>,
) -> (Option<i64>, bool, Vec<u8>) {
    let Some((program, arguments)) = command.split_first() else { return (None, false, Vec::new()) };
    let mut child = Command::new(program);
    child.args(arguments).envs(&task.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: what it leaves behind ends with it.
    child.kill_on_drop(true).process_group(0);
    if let Some(dir) = &task.workdir {
        child.current_dir(Path::new(dir));
    }
    let mut child = match child.spawn() {
        Ok(child) => child,
        Err(error) => return (Some(127), false, format!("cannot start '{program}': {error}\n").into_bytes()),
    };
    let leader = Leader::of(&child);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut reading = Box::pin(async { tokio::join!(gather(out, &mut output), gather(err, &mut errors)) });
    let ending = async {
        let ends = async {
            match &leader {
                Some(leader) => leader.ended().await,
                None => drop(child.wait().await),
            }
        };
        let timed_out = match limit {
            Some(limit) => tokio::time::timeout(limit, ends).await.is_err(),
            None => {
                ends.await;
                false
            }
        };
        // Whatever of it still lives would keep its output open for ever.
        match &leader {
            Some(leader) => leader.kill_group(),
            None => drop(child.start_kill()),
        }
        let code = child.wait().await.ok().and_then(|status| status.code()).map(i64::from);
        (code.filter(|_| !timed_out), timed_out)
    };
    tokio::pin!(ending);
    let (code, timed_out) = tokio::select! {
        ended = &mut ending => {
            let _ = tokio::time::timeout(LEFT_BEHIND, &mut reading).await;
            ended
        }
        _ = &mut reading => ending.await,
    };
    drop(reading);
    output.extend(errors);
    (code, timed_out, output)
}

/// A child whose end is seen and not taken yet: until it is, its group is nobody else's.
#[derive(Clone, Copy)]
struct Leader(Pid);

impl Leader {
    #[allow(
        clippy::disallowed_methods,
        reason = "a child of ours that was not waited for, named to the kernel only"
    )]
    fn of(child: &tokio::process::Child) -> Option<Self> {
        child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).map(Self)
    }

    async fn ended(self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = tokio::task::spawn_blocking(move || waitid(WaitId::Pid(self.0), options).map(drop)).await;
    }

    fn kill_group(self) {
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// Everything, passed on to our own output, and the end of it kept.
async fn gather(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut stream) = stream else { return };
    let mut chunk = vec![0; 64 * 1024];
    let mut passed = tokio::io::stdout();
    while let Ok(got) = stream.read(&mut chunk).await {
        if got == 0 {
            break;
        }
        let _ = passed.write_all(&chunk[..got]).await;
        kept.extend_from_slice(&chunk[..got]);
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    let _ = passed.flush().await;
}
