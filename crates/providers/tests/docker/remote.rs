//! An engine that is reached over the network: plainly, through somebody who loses answers, and with TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parhelia_core::sandbox::Phase;
use parhelia_providers::docker::engine::Address;
use parhelia_providers::{CreateError, Provider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::engine::DockerEngine;
use super::ground::{Ground, named, provider, spec};

/// Passes everything on; while `losing`, the engine's answers to a create are dropped.
async fn go_between(ground: &Ground, losing: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let socket = ground.engine.socket();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(engine) = UnixStream::connect(&socket).await else { continue };
            tokio::spawn(pass_on(client, engine, losing.clone()));
        }
    });
    address
}

async fn pass_on(mut client: TcpStream, mut engine: UnixStream, losing: Arc<AtomicBool>) {
    let mut head = vec![0; 64 * 1024];
    let Ok(got) = client.read(&mut head).await else { return };
    if engine.write_all(&head[..got]).await.is_err() {
        return;
    }
    let line = String::from_utf8_lossy(&head[..got]);
    let line = line.lines().next().unwrap_or_default();
    if losing.load(Ordering::SeqCst) && line.contains("/containers/create") {
        // Its body may come in a second piece; then the engine does it, and nobody is told.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(200), async {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut Swallow(&mut engine)).await;
        })
        .await;
        return;
    }
    let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
}

/// Takes what is written and gives nothing back.
struct Swallow<'a>(&'a mut UnixStream);

impl tokio::io::AsyncRead for Swallow<'_> {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Pending
    }
}

impl tokio::io::AsyncWrite for Swallow<'_> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut *self.0).poll_write(cx, bytes)
    }
    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut *self.0).poll_flush(cx)
    }
    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_answer_is_lost_is_unknown_and_the_next_one_finishes_it() {
    let ground = Ground::new();
    let losing = Arc::new(AtomicBool::new(true));
    let address = go_between(&ground, losing.clone()).await;
    let remote = provider(Address::Tcp(address), ground.secrets.path().to_owned());
    let spec = spec(&["sleep", "600"]);
    let error = remote.create(&spec).await.unwrap_err();
    assert!(matches!(error, CreateError::Unknown(_)), "{error:?}");
    // It is made, and nobody is told; the engine may still be at it.
    assert_eq!(ground.made(&spec).await.phase, Phase::Starting);
    losing.store(false, Ordering::SeqCst);
    assert_eq!(remote.create(&spec).await.unwrap().phase, Phase::Running);
    assert_eq!(remote.list().await.unwrap().sandboxes.len(), 1);
    remote.stop(&named(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_both_sides_must_prove_themselves() {
    let (engine, certificates, host) = DockerEngine::start_with_tls();
    let secrets = tempfile::tempdir().unwrap();
    let address = Address::find(Some(&host), certificates.path().to_str(), |_| None).unwrap();
    let remote = provider(address, secrets.path().to_owned());
    let spec = spec(&["sleep", "600"]);
    assert_eq!(remote.create(&spec).await.unwrap().phase, Phase::Running);
    assert_eq!(remote.list().await.unwrap().sandboxes.len(), 1);
    let plain = provider(Address::Tcp(host), secrets.path().to_owned());
    plain.list().await.unwrap_err();
    drop(engine);
}
