//! End-to-end: the built binary, real processes, real deaths. Each test has a home of its own, so they run
//! side by side. What a test leaves running is ended when its home is dropped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test the panic is the message")]

mod harness;

#[path = "../../../providers/tests/docker/engine.rs"]
mod docker_engine;

mod alerts;
mod api_input;
mod at;
mod attach;
mod bench;
mod cascade;
mod cleanup_jobs;
mod clickhouse;
mod clickhouse_front;
mod clock;
mod cost;
mod disk;
mod docker;
mod doctor;
mod doors;
mod engines;
mod examples;
mod exec;
mod failover;
mod first_steps;
mod health;
mod inbox;
mod incident;
mod job_disk;
mod job_recovery;
mod jobs;
mod kills;
mod listening;
mod load;
mod lying_provider;
mod mcp;
mod metrics;
mod monitor_log;
mod moving;
mod policies;
mod postgres;
mod postgres_kills;
mod receiver;
mod recovery;
mod run;
mod screens;
mod server_life;
mod session_kills;
mod sessions;
mod signals;
mod staleness;
mod stream;
mod supervisor;
mod telemetry;
mod upgrade;
mod why;
mod wiring;
mod workers;
mod zero_pids;
