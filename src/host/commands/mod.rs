//! The commands: what each does between its arguments and its reply.

pub mod draw_token;
pub mod error_reply;
pub mod execute;
pub mod inspect;
pub mod list_queues;
pub mod table;
