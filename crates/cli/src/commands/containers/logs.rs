//! `parhelia containers logs`: the output of a sandbox, every byte as it came and nothing else.

use std::time::Duration;

use parhelia_core::api::{HEADER_LOG_FINISHED, HEADER_LOG_NEXT, HEADER_LOG_OFFSET};

use super::get;
use crate::args::LogsArgs;
use crate::client::{Answer, Client, segment};
use crate::context::Context;
use crate::error::Result;

const CHUNK_BYTES: u64 = 1 << 20;
/// How long the server may hold a question about output that is not there yet.
const HOLD: Duration = Duration::from_secs(20);
/// The last lines are looked for in at most this much.
const TAIL_SEARCH_BYTES: u64 = 64 << 20;

struct Chunk {
    offset: u64,
    next: u64,
    finished: bool,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum From {
    Offset(u64),
    /// This many bytes before the end.
    Tail(u64),
}

pub(super) async fn run(ctx: &Context, args: LogsArgs) -> Result<()> {
    let client = ctx.client()?;
    let id = get(&client, &args.id).await?.record.id;
    show(ctx, &client, id.as_str(), &args).await
}

/// The output of one that is known.
pub(crate) async fn show(ctx: &Context, client: &Client, id: &str, args: &LogsArgs) -> Result<()> {
    let begin = match (args.tail, args.tail_bytes) {
        (Some(lines), _) => last_lines(ctx, client, id, lines).await?,
        (None, Some(bytes)) => Some(From::Tail(bytes)),
        (None, None) => Some(From::Offset(0)),
    };
    match begin {
        Some(begin) => print(ctx, client, id, begin, args.follow).await,
        None => Ok(()),
    }
}

/// Prints everything as it comes, until the sandbox has ended.
pub(crate) async fn follow(ctx: &Context, client: &Client, id: &str) -> Result<()> {
    print(ctx, client, id, From::Offset(0), true).await
}

async fn print(ctx: &Context, client: &Client, id: &str, begin: From, follow: bool) -> Result<()> {
    let mut from = begin;
    loop {
        let chunk = fetch(client, id, from, follow).await?;
        if let From::Offset(asked) = from
            && chunk.offset > asked
        {
            ctx.out.note(&format!("[{} bytes are no longer kept]", chunk.offset - asked));
        }
        ctx.out.bytes(&chunk.bytes)?;
        let at_end = (chunk.bytes.len() as u64) < CHUNK_BYTES;
        if chunk.finished || (at_end && !follow) {
            return Ok(());
        }
        // A server that does not hold the question must not be asked without a pause.
        if chunk.bytes.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        from = From::Offset(chunk.next);
    }
}

/// Prints the last lines of what is there, and says where following begins. `None` when nothing can follow.
async fn last_lines(ctx: &Context, client: &Client, id: &str, lines: usize) -> Result<Option<From>> {
    let mut window = ((lines as u64).saturating_mul(256)).clamp(64 << 10, TAIL_SEARCH_BYTES);
    loop {
        let (begin, end, finished, bytes) = window_of(client, id, window).await?;
        let enough = line_start(&bytes, lines).is_some();
        // No earlier byte exists when the window was not filled.
        let whole = begin == 0 || (bytes.len() as u64) < window || window >= TAIL_SEARCH_BYTES;
        if enough || whole {
            ctx.out.bytes(&bytes[line_start(&bytes, lines).unwrap_or(0)..])?;
            return Ok((!finished).then_some(From::Offset(end)));
        }
        window = (window * 4).min(TAIL_SEARCH_BYTES);
    }
}

/// The last `window` bytes: where they begin and end, whether more can come, and the bytes.
async fn window_of(client: &Client, id: &str, window: u64) -> Result<(u64, u64, bool, Vec<u8>)> {
    let mut chunk = fetch(client, id, From::Tail(window), false).await?;
    let begin = chunk.offset;
    let mut bytes = std::mem::take(&mut chunk.bytes);
    let mut last = bytes.len() as u64;
    while last >= CHUNK_BYTES && !chunk.finished {
        let mut more = fetch(client, id, From::Offset(chunk.next), false).await?;
        last = more.bytes.len() as u64;
        bytes.append(&mut more.bytes);
        chunk = more;
    }
    Ok((begin, chunk.next, chunk.finished, bytes))
}

/// Where the last `lines` lines begin, if there are more lines before them.
fn line_start(bytes: &[u8], lines: usize) -> Option<usize> {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if lines == 0 {
        return Some(bytes.len());
    }
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    ends.into_iter().nth(lines - 1)
}

async fn fetch(client: &Client, id: &str, from: From, hold: bool) -> Result<Chunk> {
    let hold = if hold { HOLD } else { Duration::ZERO };
    let mut query = vec![("max_bytes", CHUNK_BYTES.to_string())];
    query.push(match from {
        From::Offset(offset) => ("offset", offset.to_string()),
        From::Tail(bytes) => ("tail_bytes", bytes.to_string()),
    });
    if !hold.is_zero() {
        query.push(("wait_seconds", hold.as_secs().to_string()));
    }
    let answer = client.get_raw(&format!("/containers/{}/logs", segment(id)?), &query, hold).await?;
    let word =
        |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let number = |name: &str| word(name).parse::<u64>().ok();
    let asked = if let From::Offset(offset) = from { offset } else { 0 };
    let offset = number(HEADER_LOG_OFFSET).unwrap_or(asked);
    let next = number(HEADER_LOG_NEXT).unwrap_or(offset + answer.body.len() as u64);
    let finished = matches!(word(HEADER_LOG_FINISHED), "true" | "1");
    let Answer { body: bytes, .. } = answer;
    Ok(Chunk { offset, next, finished, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_with_or_without_a_newline_at_the_end() {
        let tail = |text: &str, lines| line_start(text.as_bytes(), lines).map(|at| text[at..].to_owned());
        assert_eq!(tail("a\nb\nc\n", 2).as_deref(), Some("b\nc\n"));
        assert_eq!(tail("a\nb\nc", 2).as_deref(), Some("b\nc"));
        assert_eq!(tail("a\nb\nc\n", 3), None);
        assert_eq!(tail("a\n\n\n", 2).as_deref(), Some("\n\n"));
        assert_eq!(tail("a\n", 0).as_deref(), Some(""));
        assert_eq!(tail("", 5), None);
    }
}
