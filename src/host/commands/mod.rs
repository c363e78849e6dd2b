//! The commands: what each command does with its arguments, up to the reply.

pub mod checks;
pub mod draw_token;
pub mod enqueue;
pub mod error_reply;
pub mod execute;
pub mod facts;
pub mod inspect;
pub mod list_queues;
pub mod slow_log;
pub mod table;
