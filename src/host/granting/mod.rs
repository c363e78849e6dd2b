//! Grants: to the next waiter, to a session, and what follows from them.

pub mod delivery;
pub mod handover;
pub mod overdue;
pub mod reviews;
