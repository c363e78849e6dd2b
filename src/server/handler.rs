//! The type of the function by which the server calls a command.

use redis_module::raw;

/// The function by which the server calls a command.
#[derive(Clone, Copy)]
pub struct CommandHandler(pub(super) raw::RedisModuleCmdFunc);
