//! Waiters: how a request joins a queue, and how its client gets the reply.

pub mod enqueue;
pub mod messages;
pub mod pending_replies;
