//! A user of the server, and what its ACL rules allow.

use redis_module::raw;

use super::string::{Arguments, StringRef};

const OK: i32 = raw::REDISMODULE_OK as i32;

/// A user of the server. The handle is the module's.
pub(super) struct User(*mut raw::RedisModuleUser);

impl User {
    /// Takes over a handle, unless it is null.
    ///
    /// # Safety
    ///
    /// The handle is the module's, and is freed nowhere else.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleUser) -> Option<Self> {
        (!raw.is_null()).then_some(Self(raw))
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleUser {
        self.0
    }

    /// Returns whether one selector of the user allows to publish on a channel.
    pub(super) fn may_publish_on(&self, channel: StringRef<'_>) -> bool {
        let access = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as i32;
        // SAFETY: the user is valid until it is dropped, and the channel during this call.
        unsafe { api!(RedisModule_ACLCheckChannelPermissions(self.0, channel.raw(), access)) == OK }
    }

    /// Returns whether one selector of the user allows a command with its keys.
    pub(super) fn may_run(&self, arguments: Arguments<'_>) -> bool {
        let (argv, argc) = arguments.raw();
        // SAFETY: as above; the server changes neither the arguments nor their array.
        unsafe { api!(RedisModule_ACLCheckCommandPermissions(self.0, argv, argc)) == OK }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: the handle is the module's, and freed once.
        unsafe { api!(RedisModule_FreeModuleUser(self.0)) }
    }
}
