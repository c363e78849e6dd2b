//! What whoever runs the server sees of the module: docs/operations.md.

mod audience;
mod config_rewrite;
mod failed_loads;
mod key_events;
mod latency;
mod loading;
mod log;
mod removal;
mod second_module;
mod unloading;
