//! Output by absolute offset.

use std::time::{Duration, Instant};

use parhelia_providers::{Provider, ProviderError};

use super::engine::IMAGE;
use super::ground::{Ground, named, spec};

#[tokio::test(flavor = "multi_thread")]
async fn every_offset_gives_the_same_bytes_however_they_are_asked_for() {
    let ground = Ground::new();
    let script = "for i in $(seq 1 3000); do echo out $i; echo err $i >&2; done; dd if=/dev/zero bs=40000 count=1 2>/dev/null; printf 'no end'";
    let (spec, _) = ground.start(&["sh", "-c", script]).await;
    ground.ended(&spec).await;
    let whole = ground.provider.logs(&named(&spec), 0, 1 << 20).await.unwrap();
    assert!(whole.finished && whole.offset == 0 && whole.next_offset == whole.bytes.len() as u64);
    let text = String::from_utf8_lossy(&whole.bytes);
    assert!(text.contains("out 3000\n") && text.contains("err 3000\n") && text.ends_with("no end"));
    assert_eq!(whole.bytes.iter().filter(|b| **b == 0).count(), 40_000);

    for size in [1000, 4096, 30_001] {
        let mut pieces: Vec<u8> = Vec::new();
        loop {
            let chunk = ground.provider.logs(&named(&spec), pieces.len() as u64, size).await.unwrap();
            assert_eq!(chunk.offset, pieces.len() as u64);
            assert!(chunk.bytes.len() <= size);
            pieces.extend(&chunk.bytes);
            if chunk.finished {
                break;
            }
        }
        assert!(pieces == whole.bytes, "in pieces of {size}");
    }
    for offset in [0, 1, 17, 5000, whole.bytes.len() - 3] {
        let chunk = ground.provider.logs(&named(&spec), offset as u64, 100).await.unwrap();
        let end = (offset + 100).min(whole.bytes.len());
        assert!(chunk.bytes == whole.bytes[offset..end], "{offset}");
    }
    let beyond = ground.provider.logs(&named(&spec), u64::MAX, 1).await.unwrap();
    assert_eq!((beyond.offset, beyond.next_offset), (whole.next_offset, whole.next_offset));
    assert!(beyond.finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_sees_every_line_once_while_it_is_written() {
    let ground = Ground::new();
    let script = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; [ $((i%7)) -eq 0 ] && echo odd $i >&2; sleep 0.03; done";
    let (spec, _) = ground.start(&["sh", "-c", script]).await;
    let mut all: Vec<u8> = Vec::new();
    let began = Instant::now();
    loop {
        let chunk = ground.provider.logs(&named(&spec), all.len() as u64, 1 << 16).await.unwrap();
        assert_eq!(chunk.offset, all.len() as u64);
        all.extend(&chunk.bytes);
        if chunk.finished {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let text = String::from_utf8(all).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("line")).collect();
    let expected: Vec<String> = (1..=200).map(|i| format!("line {i}")).collect();
    assert_eq!(lines, expected);
    assert_eq!(text.lines().filter(|line| line.starts_with("odd")).count(), 28);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_output_too_and_a_stranger_none() {
    let ground = Ground::new();
    let spec = spec(&["true"]);
    let label = format!("parhelia.container={}", spec.container_id);
    ground.engine.ok(&[
        "run",
        "-t",
        "--name",
        spec.container_id.as_str(),
        "--label",
        &label,
        IMAGE,
        "echo",
        "hello",
    ]);
    assert_eq!(ground.output(&spec).await, "hello\r\n");
    let error = ground.provider.logs(&named(&super::ground::spec(&["true"])), 0, 10).await.unwrap_err();
    assert!(matches!(error, ProviderError::Rejected(_)), "{error:?}");
}
