//! End-to-end: the built binary, real processes, real deaths. Each test has a home of its own, so they run
//! side by side. What a test leaves running is ended when its home is dropped.

mod harness;

mod api_input;
mod first_steps;
mod incident;
mod kills;
mod lying_provider;
mod recovery;
mod screens;
mod server_life;
mod supervisor;
mod health;
mod policies;
mod cost;
