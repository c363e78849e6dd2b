//! The context in which the server has called us.

use std::marker::PhantomData;

use bitflags::bitflags;
use redis_module::raw;

use crate::core::ClientId;

/// A context of the server. It ends when the callback it was given to returns.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    raw: *mut raw::RedisModuleCtx,
    callback: PhantomData<&'c ()>,
}

bitflags! {
    /// What the context and the server are like. The server's own bits.
    #[derive(Clone, Copy)]
    pub struct ContextFlags: u32 {
        const REPLICA = raw::REDISMODULE_CTX_FLAGS_SLAVE;
        /// In a script or function, where the client is a stand-in.
        const SCRIPT = raw::REDISMODULE_CTX_FLAGS_LUA;
        const CLUSTER = raw::REDISMODULE_CTX_FLAGS_CLUSTER;
        const LOADING = raw::REDISMODULE_CTX_FLAGS_LOADING;
        /// In MULTI, a script or a function: a client cannot be blocked.
        const DENY_BLOCKING = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        const _ = !0;
    }
}

impl Context<'_> {
    /// # Safety
    /// `raw` is the context that the server gave to the callback which is running, and the result does not outlive it.
    pub unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, callback: PhantomData }
    }

    pub fn raw(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    pub fn flags(self) -> ContextFlags {
        // SAFETY: the context is valid (see `new`).
        let bits = unsafe { api!(RedisModule_GetContextFlags(self.raw)) };
        ContextFlags::from_bits_retain(bits as u32)
    }

    /// The number of the selected database.
    pub fn db(self) -> i32 {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_GetSelectedDb(self.raw)) }
    }

    /// Selects a database. Only for contexts of our own callbacks: in a command it would change the client's.
    pub fn select_db(self, db: i32) {
        // SAFETY: the context is valid (see `new`). A number out of range is refused and leaves the selection.
        unsafe { api!(RedisModule_SelectDb(self.raw, db)) };
    }

    /// The number of the client whose command this is.
    pub fn client_id(self) -> ClientId {
        // SAFETY: the context is valid (see `new`).
        let id = unsafe { api!(RedisModule_GetClientId(self.raw)) };
        id as ClientId
    }
}
