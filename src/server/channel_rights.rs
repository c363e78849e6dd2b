//! The right of a user to a channel that a command names.
//!
//! A module can also declare which of its arguments are channels (flag `getchannels-api`), and the server then checks
//! them before it runs the command. But Redis 8 takes such a command for one that needs a channel and no key: it checks
//! no right to the key, and in a cluster it runs the command where the key is missing and may be at another node.

use redis_module::raw;

use super::context::Context;
use super::string::StringRef;

impl<M> Context<'_, M> {
    /// Returns whether the user who sent this command may publish on a channel, by the `&pattern` rules of the server. A
    /// refusal is in its `ACL LOG`. Without a user there is no right.
    pub fn may_publish_on(&self, channel: StringRef<'_>) -> bool {
        let Some(name) = self.user_name() else { return false };
        // SAFETY: the context, the channel and the name are valid during the calls; the handle of the user is the module's,
        // and freed here.
        unsafe {
            let user = api!(RedisModule_GetModuleUserFromUserName(name.as_ref().raw()));
            if user.is_null() {
                return false;
            }
            let access = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as i32;
            let has_right =
                api!(RedisModule_ACLCheckChannelPermissions(user, channel.raw(), access)) == raw::REDISMODULE_OK as i32;
            if !has_right {
                let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
                api!(RedisModule_ACLAddLogEntry(self.raw(), user, channel.raw(), reason));
            }
            api!(RedisModule_FreeModuleUser(user));
            has_right
        }
    }
}
