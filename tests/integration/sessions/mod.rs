//! Locks that belong to a connection: docs/sessions.md. Most tests are in tests/scenarios/sessions.

mod closing;
mod load;
