//! Sessions: renewal of their leases, and locks of closed connections.

pub mod renewal;
pub mod revocation;
pub mod share_sessions;
