//! A user of the server, and the rights that its ACL rules give.

use redis_module::raw;

use crate::server::api::OK;
use crate::server::string::{Arguments, StringRef};

/// A user of the server. The module owns the handle; dropping the value frees it.
pub(in crate::server) struct User(pub(super) *mut raw::RedisModuleUser);

impl User {
    /// Takes ownership of a handle. Returns `None` for null.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a handle that the module owns and that no other code frees.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleUser) -> Option<Self> {
        if raw.is_null() { None } else { Some(Self(raw)) }
    }

    /// Returns whether a selector of the user allows publishing on a channel.
    pub(super) fn may_publish_on(&self, channel: StringRef<'_>) -> bool {
        let access = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as i32;
        // SAFETY: the user is valid until it is dropped, and the channel during this call.
        unsafe { api!(RedisModule_ACLCheckChannelPermissions(self.0, channel.raw(), access)) == OK }
    }

    /// Returns whether a selector of the user allows a command with its keys.
    pub(super) fn may_run(&self, arguments: Arguments<'_>) -> bool {
        let (argv, argc) = arguments.raw();
        // SAFETY: as above; the server changes neither the arguments nor their array.
        unsafe { api!(RedisModule_ACLCheckCommandPermissions(self.0, argv, argc)) == OK }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the module owns the handle, and only this value frees it.
        unsafe { api!(RedisModule_FreeModuleUser(self.0)) }
    }
}
