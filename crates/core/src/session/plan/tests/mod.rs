mod tasks;
mod waits;
mod walk;
mod world;
