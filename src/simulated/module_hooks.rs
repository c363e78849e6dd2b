//! The functions of a module that the simulated server calls, without the type of the module.

use std::ffi::CStr;

use super::ClientId;
use super::blocked_client::BlockedClientId;
use super::command::Command;
use super::command_handler::CommandHandler;
use super::setting::Setting;

/// The functions and constants of a module.
#[derive(Clone, Copy)]
pub(super) struct ModuleHooks {
    pub name: &'static [u8],
    pub settings: &'static [&'static Setting],
    pub commands: &'static [Command],
    pub loaded: fn(),
    pub setting_changed: fn(),
    pub run: fn(CommandHandler, ClientId, i32, &[Vec<u8>]),
    pub timer: fn(),
    pub cron: fn(i64),
    pub key_event: fn(i32, &str, &[u8]),
    pub keyspace_changed: fn(),
    pub role_changed: fn(bool),
    pub client_closed: fn(ClientId),
    /// Makes the reply to a blocked client, unless the module has made it before.
    pub answer: fn(BlockedClientId),
    /// Called when a blocked client has disconnected.
    pub disconnected: fn(BlockedClientId),
    /// Called when a blocked client is freed. The flag is true if the client has certainly not got the reply that the module
    /// made.
    pub freed: fn(BlockedClientId, bool),
    pub forget: fn(),
    pub info: fn() -> Vec<(String, u64)>,
    pub info_words: fn() -> Vec<(&'static CStr, &'static CStr)>,
}
