//! The client libraries that people lock with: docs/guides/clients.md.

mod interop;
mod patience;
