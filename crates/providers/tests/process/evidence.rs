//! What the files and the lock prove, and what they must not hold.

use std::fs::File;

use parhelia_core::sandbox::Inspection;
use parhelia_providers::process::lock::is_locked;
use parhelia_providers::{Provider, ProviderError, SandboxRef};
use rustix::process::Signal;

use crate::ground::*;

#[tokio::test]
async fn the_lock_is_held_exactly_while_the_supervisor_lives() {
    let ground = Ground::new();
    let spec = shell("(setsid sleep 1000 &); echo ready; sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    let alive = ground.dir(&spec).alive();
    for _ in 0..3 {
        assert!(is_locked(File::open(&alive).unwrap()).unwrap(), "asking takes nothing");
    }
    signal_supervisor(&spec, Signal::KILL);
    let freed = for_a_while(async || !is_locked(File::open(&alive).unwrap()).unwrap()).await;
    assert!(freed, "no child has inherited it");
}

#[tokio::test]
async fn no_file_of_a_job_names_a_process() {
    let ground = Ground::new();
    let spec = shell("echo ready; sleep 1000");
    ground.provider.create(&spec).await.unwrap();
    ground.says(&spec, "ready").await;
    ground.provider.stop(&reference(&spec), 3600).await.unwrap();
    ground.ended(&spec).await;
    for entry in std::fs::read_dir(ground.dir(&spec).path()).unwrap().flatten() {
        // The sentinel goes while this looks.
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default().to_lowercase();
        for word in [["p", "id\""].concat(), "process_id".to_owned(), "processid".to_owned()] {
            assert!(!text.contains(&word), "{:?}: {text}", entry.path());
        }
    }
}

#[tokio::test]
async fn only_ids_of_jobs_become_paths() {
    let ground = Ground::new();
    let spec = shell("true");
    let odd = SandboxRef { sandbox_id: Some("../../etc".into()), ..reference(&spec) };
    assert!(matches!(ground.provider.inspect(&odd).await, Err(ProviderError::Rejected(_))));
    assert!(matches!(ground.provider.stop(&odd, 0).await, Err(ProviderError::Rejected(_))));
    assert!(matches!(ground.provider.logs(&odd, 0, 1).await, Err(ProviderError::Rejected(_))));
    assert_eq!(ground.provider.inspect(&reference(&spec)).await.unwrap(), Inspection::Absent);
}

#[tokio::test]
async fn names_of_others_in_the_jobs_directory_are_left_alone() {
    let ground = Ground::new();
    let spec = shell("exit 0");
    ground.provider.create(&spec).await.unwrap();
    ground.ended(&spec).await;
    std::fs::create_dir(ground.home.join("jobs/lost+found")).unwrap();
    std::fs::write(ground.home.join("jobs/README"), "").unwrap();
    let listing = ground.provider.list().await.unwrap();
    assert!(listing.complete);
    assert_eq!(listing.sandboxes.len(), 1);
    assert!(ground.home.join("jobs/lost+found").exists());
}
