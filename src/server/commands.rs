//! Commands of the module: how they run, and how the server learns of them.

mod register;
mod run;

use redis_module::raw;

pub use register::has_own_acl_categories;
pub(super) use register::register;
pub use run::{RunCommand, handler};

/// The function by which the server calls a command. [`handler`] creates it.
#[derive(Clone, Copy)]
pub struct CommandHandler(pub(super) raw::RedisModuleCmdFunc);
