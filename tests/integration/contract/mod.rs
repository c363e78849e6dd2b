//! What each command promises its callers: docs/commands and docs/fencing.md.

mod bad_input;
mod extend;
mod fencing;
mod holds;
mod introspection;
mod lock_info;
mod mutex;
mod queues;
mod reentrant;
mod slowlog;
mod slowlog_ends;
mod slowlog_entry;
