//! What whoever runs the server sees of the module: docs/operations.md.

mod audience;
mod latency;
mod loading;
mod log;
mod second_module;
mod unloading;
