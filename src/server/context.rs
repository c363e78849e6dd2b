//! The context of a call of the module.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;

use bitflags::bitflags;
use redis_module::raw;

use super::{ClientId, api};

/// A context of the server, in a call of module `M`. It ends with the callback that it was given to.
///
/// Everything that can write or call back takes it by `&mut`.
pub struct Context<'c, M> {
    raw: *mut raw::RedisModuleCtx,
    /// Whether this is a command whose client is not blocked yet.
    pub(super) may_block: bool,
    callback: PhantomData<&'c ()>,
    module: PhantomData<fn() -> M>,
}

bitflags! {
    /// The state of the context and the server. The bits are the server's own.
    #[derive(Clone, Copy)]
    pub struct ContextFlags: u32 {
        const REPLICA = raw::REDISMODULE_CTX_FLAGS_SLAVE;
        /// In a script or function, where the client is a stand-in.
        const SCRIPT = raw::REDISMODULE_CTX_FLAGS_LUA;
        const TRANSACTION = raw::REDISMODULE_CTX_FLAGS_MULTI;
        const CLUSTER = raw::REDISMODULE_CTX_FLAGS_CLUSTER;
        const LOADING = raw::REDISMODULE_CTX_FLAGS_LOADING;
        /// In MULTI, a script or a function, where a client cannot be blocked.
        const DENY_BLOCKING = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        const _ = !0;
    }
}

impl<M> Context<'_, M> {
    /// Creates a context from the server's.
    ///
    /// # Safety
    ///
    /// `raw` is the context that the server gave to the running callback, and the result does not outlive the callback.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, may_block: false, callback: PhantomData, module: PhantomData }
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// Returns the flags of the context.
    pub fn flags(&self) -> ContextFlags {
        // SAFETY: the context is valid (see `new`).
        let bits = unsafe { api!(RedisModule_GetContextFlags(self.raw)) };
        ContextFlags::from_bits_retain(bits as u32)
    }

    /// Returns the number of the selected database.
    pub fn db(&self) -> i32 {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_GetSelectedDb(self.raw)) }
    }

    /// Selects a database. A number out of range has no effect.
    ///
    /// In a command this would change the client's database, so call it in [`Module::timer`](super::Module::timer)
    /// only.
    pub fn select_db(&mut self, db: i32) {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_SelectDb(self.raw, db)) };
    }

    /// Returns the server's number for the client that sent this command.
    pub fn client_id(&self) -> ClientId {
        // SAFETY: the context is valid (see `new`).
        let id = unsafe { api!(RedisModule_GetClientId(self.raw)) };
        id as ClientId
    }

    /// Returns whether the client that sent this command has a connection.
    ///
    /// The client that the server makes up for a script, or for a call by another module, has none. A call by a module
    /// denies blocking without being in a transaction, and most servers do not find its client by number. (Valkey 9.1
    /// finds it, and crashes when it is asked for more.)
    pub fn has_connection(&self) -> bool {
        let flags = self.flags();
        let is_called = flags.contains(ContextFlags::DENY_BLOCKING) && !flags.contains(ContextFlags::TRANSACTION);
        // SAFETY: takes a number, and writes nothing where there is nowhere to write to.
        let answer = unsafe { api!(RedisModule_GetClientInfoById(ptr::null_mut(), self.client_id() as u64)) };
        !is_called && !flags.contains(ContextFlags::SCRIPT) && answer == raw::REDISMODULE_OK as c_int
    }

    /// Returns a field of a section of INFO, if there is one.
    pub fn server_info(&mut self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: the data is made and given back here, and the text copied before that.
        unsafe {
            let data = api!(RedisModule_GetServerInfo(self.raw, section.as_ptr()));
            let text = api!(RedisModule_ServerInfoGetFieldC(data, field.as_ptr()));
            let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.raw, data));
            text
        }
    }

    /// Writes a warning into the server's log.
    pub fn warn(&self, line: &str) {
        api::warn(self.raw, line);
    }
}
