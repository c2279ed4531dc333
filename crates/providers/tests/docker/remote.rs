//! An engine that is reached over the network: plainly, through somebody who loses answers, and with TLS.

use std::sync::{Arc, Mutex};

use parhelia_core::sandbox::{Phase, SandboxSpec};
use parhelia_providers::docker::engine::Address;
use parhelia_providers::{CreateError, Provider, SandboxRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::engine::DockerEngine;
use super::ground::{Ground, TIMEOUT, named, provider, spec};

#[derive(Debug, Clone, PartialEq)]
enum Trouble {
    None,
    /// The engine does it, and nobody is told.
    CreateAnswersLost,
    /// Questions about this container are never answered.
    HangsFor(String),
}

/// Passes everything on, except for what its trouble is.
struct GoBetween {
    address: Address,
    trouble: Arc<Mutex<Trouble>>,
}

impl GoBetween {
    async fn start(ground: &Ground, trouble: Trouble) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(format!("tcp://{}", listener.local_addr().unwrap()));
        let socket = ground.engine.socket();
        let trouble = Arc::new(Mutex::new(trouble));
        let theirs = trouble.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(engine) = UnixStream::connect(&socket).await else { continue };
                tokio::spawn(pass_on(client, engine, theirs.clone()));
            }
        });
        Self { address, trouble }
    }

    fn is_over(&self) {
        *self.trouble.lock().unwrap() = Trouble::None;
    }
}

/// One request: nobody keeps a connection for a second one.
async fn pass_on(mut client: TcpStream, mut engine: UnixStream, trouble: Arc<Mutex<Trouble>>) {
    let mut head = vec![0; 64 * 1024];
    let Ok(got) = client.read(&mut head).await else { return };
    let line = String::from_utf8_lossy(&head[..got]);
    let line = line.lines().next().unwrap_or_default();
    let trouble = trouble.lock().unwrap().clone();
    match trouble {
        // Until whoever asked has left.
        Trouble::HangsFor(id) if line.contains(&format!("/containers/{id}/")) => {
            while client.read(&mut head).await.is_ok_and(|got| got > 0) {}
        }
        Trouble::CreateAnswersLost if line.contains("/containers/create") => {
            // Its body may come in a second piece.
            let _ = tokio::time::timeout(std::time::Duration::from_millis(200), async {
                engine.write_all(&head[..got]).await?;
                tokio::io::copy_bidirectional(&mut client, &mut Swallow(&mut engine)).await
            })
            .await;
        }
        _ => {
            if engine.write_all(&head[..got]).await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
            }
        }
    }
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
    let between = GoBetween::start(&ground, Trouble::CreateAnswersLost).await;
    let remote = provider(between.address.clone(), ground.secrets.path().to_owned());
    let spec = spec(&["sleep", "600"]);
    let error = remote.create(&spec).await.unwrap_err();
    assert!(matches!(error, CreateError::Unknown(_)), "{error:?}");
    // It is made, and nobody is told; the engine may still be at it.
    assert_eq!(ground.made(&spec).await.phase, Phase::Starting);
    between.is_over();
    assert_eq!(remote.create(&spec).await.unwrap().phase, Phase::Running);
    assert_eq!(remote.list().await.unwrap().sandboxes.len(), 1);
    remote.stop(&named(&spec), 0).await.unwrap();
    ground.ended(&spec).await;
}

/// Unknown is not absent, and it is one container's alone.
#[tokio::test(flavor = "multi_thread")]
async fn one_container_that_cannot_be_described_blinds_nobody_to_the_others() {
    let ground = Ground::new();
    let (first, _) = ground.start(&["sleep", "600"]).await;
    let (stuck, hanging) = ground.start(&["sleep", "600"]).await;
    let (third, _) = ground.start(&["sleep", "600"]).await;
    let between = GoBetween::start(&ground, Trouble::HangsFor(hanging.sandbox_id.clone())).await;
    let remote = provider(between.address.clone(), ground.secrets.path().to_owned());

    let listing =
        tokio::time::timeout(TIMEOUT, remote.list()).await.expect("nobody waits for that one alone").unwrap();
    assert!(listing.complete, "all of them are listed: {listing:?}");
    let phase = |spec: &SandboxSpec| {
        let found = listing.sandboxes.iter().find(|s| s.tags.container == spec.container_id);
        found.map(|sandbox| sandbox.phase.clone())
    };
    assert_eq!((phase(&first), phase(&third)), (Some(Phase::Running), Some(Phase::Running)));
    assert!(matches!(phase(&stuck), Some(Phase::Unknown { .. })), "{:?}", phase(&stuck));
    let by_id = SandboxRef { sandbox_id: Some(hanging.sandbox_id), ..named(&stuck) };
    remote.inspect(&by_id).await.expect_err("nobody knows whether it is there");

    let mut heard: Vec<_> =
        remote.vitals().await.unwrap().unwrap().seen.into_iter().map(|v| v.sample.container_id).collect();
    heard.sort();
    assert_eq!(heard, [first.container_id.clone(), third.container_id.clone()]);

    between.is_over();
    let listing = remote.list().await.unwrap();
    assert!(listing.sandboxes.iter().all(|s| s.phase == Phase::Running), "{listing:?}");
    assert_eq!(remote.vitals().await.unwrap().unwrap().seen.len(), 3);
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
