//! Grants a lock to the next waiter or to its session, and delivers the grant to the clients.

pub mod delivery;
pub mod hand_on;
pub mod handover;
pub mod overdue;
pub mod reviews;
