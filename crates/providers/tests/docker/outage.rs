//! The engine away, back, and another one in its place: never an absence.

use std::time::{Duration, Instant};

use parhelia_core::sandbox::{Inspection, Phase};
use parhelia_providers::{CreateError, Provider, ProviderError};

use super::engine::IMAGE;
use super::ground::{Ground, named, spec};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_knows_nothing_and_one_that_returns_knows_all() {
    let mut ground = Ground::new();
    let (alive, _) = ground.start(&["sleep", "600"]).await;
    let before = ground.listing().await;
    ground.engine.down();
    let away = |error: &ProviderError| matches!(error, ProviderError::Unreachable(_));
    assert!(away(&ground.provider.list().await.unwrap_err()));
    assert!(away(&ground.provider.inspect(&named(&alive)).await.unwrap_err()));
    assert!(away(&ground.provider.stop(&named(&alive), 1).await.unwrap_err()));
    assert!(away(&ground.provider.vitals().await.unwrap_err()));
    let error = ground.provider.create(&spec(&["true"])).await.unwrap_err();
    assert!(matches!(error, CreateError::Unknown(_)), "{error:?}");

    ground.engine.up();
    let after = ground.listing().await;
    assert_eq!((after.identity, after.complete), (before.identity, true));
    assert_eq!(after.sandboxes.len(), 1);
    assert_eq!(after.sandboxes[0].phase, Phase::Running, "it lived on without its engine");
    // It is listened to again, without anybody's doing.
    let began = Instant::now();
    ground.engine.ok(&["kill", alive.container_id.as_str()]);
    while tokio::time::timeout(Duration::from_secs(1), ground.provider.changed()).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "no hint after the engine's return");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_behind_the_same_socket_is_another_identity() {
    let mut ground = Ground::new();
    let (alive, made) = ground.start(&["sleep", "600"]).await;
    let before = ground.listing().await;
    ground.engine.replace("other");
    let other = ground.listing().await;
    assert_ne!(other.identity, before.identity);
    assert_eq!(other.sandboxes, []);
    ground.engine.bring_back();
    let after = ground.listing().await;
    assert_eq!(after.identity, before.identity);
    assert_eq!(after.sandboxes[0].sandbox_id, made.sandbox_id);
    assert!(matches!(ground.provider.inspect(&named(&alive)).await.unwrap(), Inspection::Present(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_instance_is_listed_and_nobody_without_our_label() {
    let ground = Ground::new();
    ground.engine.ok(&["run", "-d", "--name", "stranger", IMAGE, "sleep", "600"]);
    let labels = ["--label", "parhelia.container=c-ffffffffffffffff", "--label", "parhelia.instance=another"];
    ground.engine.ok(&[&["run", "-d"], &labels[..], &[IMAGE, "sleep", "600"]].concat());
    ground.start(&["sleep", "600"]).await;
    let mut instances: Vec<String> =
        ground.listing().await.sandboxes.into_iter().map(|s| s.tags.instance).collect();
    instances.sort();
    assert_eq!(instances, ["another", "instance-a"]);
}
