//! Grants a lock to its session or to the next waiter, renews the leases of sessions, and releases the locks of closed connections.

pub mod hand_on;
pub mod handover;
pub mod overdue;
pub mod renewal;
pub mod reviews;
pub mod revocation;
pub mod share_sessions;
