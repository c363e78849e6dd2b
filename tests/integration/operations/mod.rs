//! What an operator sees of the module, and other modules in the same server: docs/operations.md and docs/guides.

mod configuration_files;
mod introspection;
mod key_events;
mod latency;
mod loading;
mod log;
mod module_calls;
mod monitor;
mod persistence;
mod unloading;
