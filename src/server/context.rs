//! The context of a call of the module.

use std::ffi::{CStr, CString, c_int};
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use bitflags::bitflags;
use redis_module::raw;

use super::answer::value_in;
use super::server_info::ServerInfo;
use super::string::OwnedString;
use super::{ClientId, api};

/// The client that was last found to have a connection.
static LATEST_CONNECTED: AtomicI64 = AtomicI64::new(0);

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
    /// The client that the server makes up for a script, or for a call by another module, has none. Most servers do not
    /// find it by number. Valkey 9.1 finds it, and crashes when it is asked for more, but does not list it.
    pub fn has_connection(&self) -> bool {
        if self.flags().contains(ContextFlags::SCRIPT) {
            return false;
        }
        let id = self.client_id();
        let is_found = || {
            // SAFETY: takes a number, and writes nothing where there is nowhere to write to.
            let answer = unsafe { api!(RedisModule_GetClientInfoById(ptr::null_mut(), id as u64)) };
            answer == raw::REDISMODULE_OK as c_int
        };
        let is_connected = LATEST_CONNECTED.load(Ordering::Relaxed) == id || is_found() && self.is_listed(id);
        if is_connected {
            // Another client never gets its number.
            LATEST_CONNECTED.store(id, Ordering::Relaxed);
        }
        is_connected
    }

    /// Returns whether CLIENT LIST shows a client. Where the server does not say, all are taken to be listed.
    #[cold]
    fn is_listed(&self, id: ClientId) -> bool {
        let number = OwnedString::new(id.to_string().as_bytes());
        let (client, list, by_id) = (c"CLIENT".as_ptr(), c"LIST".as_ptr(), c"ID".as_ptr());
        // SAFETY: the context is valid (see `new`); "c" takes C strings, "s" a string, valid during the call. A reply that
        // is not null is the module's to read and to free, once; of its text only the length is read.
        unsafe {
            let reply = api!(RedisModule_Call(self.raw, client, c"ccs".as_ptr(), list, by_id, number.as_ref().raw()));
            if reply.is_null() {
                return true;
            }
            let mut len = 0;
            api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
            api!(RedisModule_FreeCallReply(reply));
            len > 0
        }
    }

    /// Returns the name of the user of the client that sent this command, if it has one.
    pub(super) fn user_name(&self) -> Option<OwnedString> {
        // SAFETY: the context is valid (see `new`), and the name, unless it is null, is the module's.
        unsafe {
            let name = api!(RedisModule_GetCurrentUserName(self.raw));
            if name.is_null() { None } else { Some(OwnedString::from_raw(name)) }
        }
    }

    /// Returns a field of a section of INFO, if there is one.
    pub fn server_info(&mut self, section: &CStr, field: &CStr) -> Option<String> {
        // SAFETY: the context is valid (see `new`).
        unsafe { ServerInfo::of(self.raw, section) }.field(field)
    }

    /// Returns how many replicas are online and were heard of within the last `lag_s` seconds, which the server counts in whole
    /// ones.
    pub fn responding_replicas(&mut self, lag_s: i64) -> i64 {
        // SAFETY: the context is valid (see `new`).
        let info = unsafe { ServerInfo::of(self.raw, c"replication") };
        let replica = |number| info.field(&CString::new(format!("slave{number}")).ok()?);
        let is_heard = |replica: &String| {
            let value = |name| value_in(replica, ',', name);
            value("state") == Some("online")
                && value("lag").and_then(|lag| lag.parse().ok()).is_some_and(|lag: i64| lag <= lag_s)
        };
        (0..).map_while(replica).filter(is_heard).map(|_| 1).sum()
    }

    /// Returns whether the server is starting, and has not served anybody yet.
    ///
    /// A client that has the module loaded is connected. Where INFO does not tell, the server is taken to be starting.
    pub fn is_starting(&mut self) -> bool {
        self.server_info(c"clients", c"connected_clients").is_none_or(|clients| clients == "0")
    }

    /// Returns whether the server has this command under its own name. It must be one that is not run without arguments.
    pub fn has_command(&self, name: &'static CStr) -> bool {
        // SAFETY: the context is valid (see `new`), and the name static; the format takes nothing.
        let reply = unsafe { api!(RedisModule_Call(self.raw, name.as_ptr(), c"".as_ptr())) };
        !reply.is_null() || io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
    }

    /// Writes a warning into the server's log.
    pub fn warn(&self, line: &str) {
        api::warn(self.raw, line);
    }

    /// Writes a line into the server's log that tells of no trouble.
    pub fn notice(&self, line: &str) {
        api::notice(self.raw, line);
    }
}
