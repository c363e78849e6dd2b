//! The context of a call of the module.

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ptr;

use bitflags::bitflags;
use redis_module::raw;

use super::api::OK;
use super::right::Server;
use super::state::{is_main_thread, state};
use super::{ClientId, api};

/// A context of the server, in a call of module `M`, valid until that call returns. A function that can write takes it by `&mut`.
pub struct Context<'c, M> {
    raw: *mut raw::RedisModuleCtx,
    /// Whether this is a command whose client is not blocked yet.
    pub(super) may_block: bool,
    server: Server,
    callback: PhantomData<&'c ()>,
    module: PhantomData<fn() -> M>,
}

bitflags! {
    /// The state of the context and the server. The bits are the server's own.
    #[derive(Clone, Copy)]
    pub struct ContextFlags: u32 {
        /// The server is a replica.
        const REPLICA = raw::REDISMODULE_CTX_FLAGS_SLAVE;
        /// The call is in a script or function, where the client is a stand-in.
        const SCRIPT = raw::REDISMODULE_CTX_FLAGS_LUA;
        /// The call is in a transaction (MULTI).
        const TRANSACTION = raw::REDISMODULE_CTX_FLAGS_MULTI;
        /// The server is a node of a cluster.
        const CLUSTER = raw::REDISMODULE_CTX_FLAGS_CLUSTER;
        /// The server loads its keyspace.
        const LOADING = raw::REDISMODULE_CTX_FLAGS_LOADING;
        /// The call is in MULTI, a script or a function, where a client cannot be blocked.
        const DENY_BLOCKING = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        const _ = !0;
    }
}

impl Context<'static, ()> {
    /// Returns the module's own context, for calls outside of a callback. Returns `None` while the module is being loaded: the
    /// server reads the settings then, and calls the module for each of them.
    ///
    /// The result must not be kept: it is invalid after the module is unloaded.
    pub(super) fn own() -> Option<Self> {
        let raw = state().own_context.get();
        // SAFETY: the timer has created the context, and sets the cell to null when it frees it.
        (!raw.is_null()).then(|| unsafe { Self::new(raw) })
    }
}

impl<M> Context<'_, M> {
    /// Creates a context from the server's.
    ///
    /// # Safety
    ///
    /// `raw` is the context that the server gave to the running callback, and the result does not outlive the callback.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        debug_assert!(is_main_thread(), "the server has called on another thread");
        Self { raw, may_block: false, server: Server::new(), callback: PhantomData, module: PhantomData }
    }

    /// Returns the right to use the server.
    #[inline(always)]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the right to call the server.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// Returns the flags of the context.
    pub fn flags(&self) -> ContextFlags {
        // SAFETY: the context is valid (see `new`).
        ContextFlags::from_bits_retain(unsafe { api!(RedisModule_GetContextFlags(self.raw)) } as u32)
    }

    /// Returns the number of the selected database.
    pub fn db(&self) -> i32 {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_GetSelectedDb(self.raw)) }
    }

    /// Selects a database, in [`Module::timer`](super::Module::timer) only: a command would change the client's database. A
    /// number out of range has no effect.
    pub fn select_db(&mut self, db: i32) {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_SelectDb(self.raw, db)) };
    }

    /// Returns the server's number for the client that sent this command.
    pub fn client_id(&self) -> ClientId {
        // SAFETY: the context is valid (see `new`).
        unsafe { api!(RedisModule_GetClientId(self.raw)) as ClientId }
    }

    /// Returns whether the client that sent this command has a connection.
    ///
    /// The client that the server creates for a script, or for a call by another module, has none. Most servers do not find it by
    /// its number. Valkey 9.1 finds it, and crashes when it is asked for its properties, but does not list it.
    pub fn has_connection(&self) -> bool {
        if self.flags().contains(ContextFlags::SCRIPT) {
            return false;
        }
        let id = self.client_id();
        // SAFETY: takes a number, and writes nothing if the place to write to is null.
        let is_found = || unsafe { api!(RedisModule_GetClientInfoById(ptr::null_mut(), id as u64)) } == OK;
        // Another client never gets the number of the latest one.
        let is_connected = state().latest_connected.get() == id || is_found() && self.is_listed(id);
        if is_connected {
            state().latest_connected.set(id);
        }
        is_connected
    }

    /// Returns a field of a section of INFO, if there is one.
    pub fn server_info(&mut self, section: &CStr, field: &CStr) -> Option<String> {
        ServerInfo::read(section).field(field)
    }

    /// Returns the number of replicas that are online and have acknowledged the replication stream within the last `lag_s`
    /// seconds. The server counts whole seconds.
    pub fn responding_replicas(&mut self, lag_s: i64) -> i64 {
        let info = ServerInfo::read(c"replication");
        let replica = |number| info.field(&CString::new(format!("slave{number}")).ok()?);
        (0..).map_while(replica).filter(|replica| has_responded(replica, lag_s)).map(|_| 1).sum()
    }

    /// Returns whether the server is starting, and has no client yet, not even one that loads the module. Returns `true` if
    /// INFO does not show the number of clients.
    pub fn is_starting(&mut self) -> bool {
        self.server_info(c"clients", c"connected_clients").is_none_or(|clients| clients == "0")
    }

    /// Writes a warning into the server's log.
    pub fn warn(&self, line: &str) {
        api::log(self.raw, c"warning", line);
    }

    /// Writes a notice into the server's log.
    pub fn notice(&self, line: &str) {
        api::log(self.raw, c"notice", line);
    }
}

/// Returns whether a replica, as INFO describes it, has responded within `lag_s` seconds. One that still synchronizes has not,
/// whatever its lag is: it does not have the last writes.
fn has_responded(replica: &str, lag_s: i64) -> bool {
    let value = |name| field_in(replica, ',', name);
    let lag = value("lag").and_then(|lag| lag.parse().ok());
    value("state") == Some("online") && lag.is_some_and(|lag: i64| lag <= lag_s)
}

/// Returns the value of a field in a line of `name=value`, as INFO and CLIENT LIST have them.
pub(super) fn field_in<'l>(line: &'l str, separator: char, name: &str) -> Option<&'l str> {
    line.split(separator).find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// A section of INFO, as it was when it was read.
struct ServerInfo(*mut raw::RedisModuleServerInfoData);

impl ServerInfo {
    fn read(section: &CStr) -> Self {
        // SAFETY: the server copies the C string, and needs no context.
        Self(unsafe { api!(RedisModule_GetServerInfo(ptr::null_mut(), section.as_ptr())) })
    }

    /// Returns the value of a field, or `None` if the section does not have the field.
    fn field(&self, name: &CStr) -> Option<String> {
        // SAFETY: the data lives as long as this value, and the text is copied before that.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC(self.0, name.as_ptr()));
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: `read` created the data without a context, and only this value frees it.
        unsafe { api!(RedisModule_FreeServerInfo(ptr::null_mut(), self.0)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_that_synchronizes_has_not_responded() {
        for (rest, expected) in [
            ("state=online,offset=70,lag=0", true),
            ("state=online,offset=70,lag=10,type=main-channel", true),
            ("state=online,offset=70,lag=11", false),
            ("state=wait_bgsave,offset=0,lag=0", false),
            ("state=send_bulk,offset=0,lag=0", false),
            ("state=online,offset=70", false),
            ("state=online,offset=70,lag=", false),
        ] {
            let replica = format!("ip=127.0.0.1,port=6380,{rest}");
            assert_eq!(has_responded(&replica, 10), expected, "{replica}");
        }
    }
}
