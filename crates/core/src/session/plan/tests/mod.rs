mod tasks;
mod waits;
mod world;
