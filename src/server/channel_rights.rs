//! The right of a user to a channel that a command names.
//!
//! Outside of a cluster the server checks it before it runs the command, which it first calls only to ask which of its
//! arguments are channels (flag `getchannels-api`). In a cluster that must not be, because Redis 8 takes a command with
//! this flag for one that needs a channel and no key. It would run where the key is missing and may be at another node,
//! in a cluster that is down, and on a replica; Redis 8.6 would even go by the channel's slot instead of the key's. So
//! there the right is checked here, when the command runs.

use redis_module::raw;

use super::channels;
use super::context::Context;
use super::handler::FindChannel;
use super::string::{Arguments, OwnedString, StringRef};

/// What a command does with its channel.
const ACCESS: i32 = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as i32;

/// The flag of a command that names a channel.
pub(super) fn flag() -> &'static str {
    if channels::is_in_cluster() { "" } else { "getchannels-api" }
}

impl<M> Context<'_, M> {
    /// Sees to the right to the channel that `find` finds among the arguments. Returns whether the command is to run.
    /// If not, it has replied, or the server wants no reply.
    pub(super) fn passes_channel(&mut self, arguments: Arguments<'_>, find: FindChannel) -> bool {
        if channels::is_in_cluster() {
            let channel = find(arguments).and_then(|number| arguments.get(number));
            let passes = channel.is_none_or(|channel| self.has_right_to(channel));
            if !passes {
                self.reply_error("NOPERM No permissions to access a channel");
            }
            return passes;
        }
        // SAFETY: the context is valid (see `Context::new`).
        let is_asked = unsafe { api!(RedisModule_IsChannelsPositionRequest(self.raw())) } != 0;
        if is_asked {
            self.name_channel(arguments, find);
        }
        !is_asked
    }

    #[cold]
    fn name_channel(&mut self, arguments: Arguments<'_>, find: FindChannel) {
        let number = find(arguments).filter(|&number| arguments.get(number).is_some());
        if let Some(number) = number.and_then(|number| i32::try_from(number).ok()) {
            // SAFETY: the context is valid (see `Context::new`), and there is an argument with this number, which the
            // server does not check.
            unsafe { api!(RedisModule_ChannelAtPosWithFlags(self.raw(), number, ACCESS)) };
        }
    }

    /// Returns whether the user of the connection may publish on a channel. Without a connection there is no user.
    fn has_right_to(&self, channel: StringRef<'_>) -> bool {
        if !self.has_connection() {
            return false;
        }
        // SAFETY: the context is that of a command whose client has a connection, and so a user; the name is the
        // module's, and so is the handle of the user, which is freed here.
        unsafe {
            let name = OwnedString::from_raw(api!(RedisModule_GetCurrentUserName(self.raw())));
            let user = api!(RedisModule_GetModuleUserFromUserName(name.as_ref().raw()));
            if user.is_null() {
                return false;
            }
            let answer = api!(RedisModule_ACLCheckChannelPermissions(user, channel.raw(), ACCESS));
            api!(RedisModule_FreeModuleUser(user));
            answer == raw::REDISMODULE_OK as i32
        }
    }
}
