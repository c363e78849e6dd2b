//! The replies to waiters: of blocked clients, and by message.

pub mod delivery;
pub mod messages;
