//! Renews the leases of sessions, and releases the locks of closed connections.

pub mod renewal;
pub mod revocation;
pub mod share_sessions;
