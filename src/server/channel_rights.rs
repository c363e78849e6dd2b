//! The right of a user to a channel that a command names.
//!
//! A module can also declare which of its arguments are channels (flag `getchannels-api`), and the server then checks
//! them before it runs the command. But Redis 8 takes such a command for one that needs a channel and no key: it checks
//! no right to the key, and in a cluster it runs the command where the key is missing and may be at another node.

use redis_module::raw;

use super::acl_selectors;
use super::acl_user::User;
use super::context::Context;
use super::string::{Arguments, StringRef};

impl<M> Context<'_, M> {
    /// Returns whether the user who sent this command may publish on a channel, by the `&pattern` rules of the server. A
    /// refusal is in its `ACL LOG`. Without a user there is no right.
    pub fn may_publish_on(&self, channel: StringRef<'_>) -> bool {
        self.has_right_to(channel, |user| user.may_publish_on(channel))
    }

    /// Returns the same, but the right to the channel counts only if the selector that has it also allows the command with its
    /// key, as for the server's own commands that name keys and channels.
    pub fn may_publish_with(&self, arguments: Arguments<'_>, channel: StringRef<'_>) -> bool {
        self.has_right_to(channel, |user| {
            user.may_publish_on(channel) && acl_selectors::one_allows(user, self.db(), arguments, channel)
        })
    }

    fn has_right_to(&self, channel: StringRef<'_>, has_right: impl FnOnce(&User) -> bool) -> bool {
        let Some(name) = self.user_name() else { return false };
        // SAFETY: the name is valid during the call; the handle is the module's.
        let user = unsafe { User::from_raw(api!(RedisModule_GetModuleUserFromUserName(name.as_ref().raw()))) };
        let Some(user) = user else { return false };
        let has_right = has_right(&user);
        if !has_right {
            let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
            // SAFETY: context, user and channel are valid during the call.
            unsafe { api!(RedisModule_ACLAddLogEntry(self.raw(), user.raw(), channel.raw(), reason)) };
        }
        has_right
    }
}
