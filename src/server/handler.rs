//! What the server calls when a client sends a command.

use redis_module::raw;

/// The server's entry to a command.
#[derive(Clone, Copy)]
pub struct CommandHandler(pub(super) raw::RedisModuleCmdFunc);
