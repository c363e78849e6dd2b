//! The type of the function by which the server calls a command.

use redis_module::raw;

use super::string::Arguments;

/// The function by which the server calls a command.
#[derive(Clone, Copy)]
pub struct CommandHandler {
    pub(super) function: raw::RedisModuleCmdFunc,
    /// Whether the function also tells the server which channels the arguments name.
    pub(super) names_channel: bool,
}

/// Finds the number of the argument that is a channel, if there is one.
pub type FindChannel = fn(Arguments<'_>) -> Option<usize>;
