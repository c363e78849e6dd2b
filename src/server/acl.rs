//! The rights of the user that sent a command to a channel that the command names.
//!
//! A module can also declare which of its arguments are channels (flag `getchannels-api`), and the server then checks them before
//! it runs the command. But Redis 8 treats such a command as one that needs a channel and no key: it does not check the right to
//! the key, and in a cluster it runs the command on a node where the key is missing and which may not serve its slot.

mod selectors;
pub(super) mod user;

use redis_module::raw;

use super::context::Context;
use super::string::{Arguments, OwnedString, StringRef};

use user::User;

impl<M> Context<'_, M> {
    /// Returns whether the user that sent this command may publish on a channel, by the `&pattern` rules of the server. The
    /// server records a refusal in its `ACL LOG`. Without a user the result is `false`.
    pub fn may_publish_on(&self, channel: StringRef<'_>) -> bool {
        self.has_right_to(channel, |user| user.may_publish_on(channel))
    }

    /// Returns the same as [`may_publish_on`](Self::may_publish_on), but a selector that allows the channel counts only if it
    /// also allows the command with its key, as for the server's own commands that name keys and channels.
    pub fn may_publish_with(&self, arguments: Arguments<'_>, channel: StringRef<'_>) -> bool {
        self.has_right_to(channel, |user| {
            user.may_publish_on(channel) && selectors::one_allows(user, self.db(), arguments, channel)
        })
    }

    fn has_right_to(&self, channel: StringRef<'_>, has_right: impl FnOnce(&User) -> bool) -> bool {
        // SAFETY: the context is valid, and the name is the module's.
        let name = unsafe { OwnedString::from_raw(api!(RedisModule_GetCurrentUserName(self.raw()))) };
        let Some(name) = name else { return false }; // The client of a script that no client runs has no user.
        // SAFETY: the name is valid during the call; the module owns the handle.
        let user = unsafe { User::from_raw(api!(RedisModule_GetModuleUserFromUserName(name.as_ref().raw()))) };
        let Some(user) = user else { return false }; // `ACL DELUSER` has deleted the user.
        let has_right = has_right(&user);
        if !has_right {
            let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
            // SAFETY: context, user and channel are valid during the call.
            unsafe { api!(RedisModule_ACLAddLogEntry(self.raw(), user.0, channel.raw(), reason)) };
        }
        has_right
    }
}
