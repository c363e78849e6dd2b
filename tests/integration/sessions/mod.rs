//! Locks that belong to a connection: docs/sessions.md.

mod beginning;
mod closing;
mod deadlock;
mod ends;
mod grace;
mod stalls;
