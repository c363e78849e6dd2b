//! Keys of the keyspace. This file is about any key, and about Strings.

mod cache;
mod hash;
mod replication;
mod sorted_set;

use std::ffi::CStr;
use std::{ptr, slice};

use redis_module::raw;

use super::UnixMs;
use super::api::OK;
use super::calls::{CallMode, was_executed};
use super::context::Context;
use super::kinds::{Mode, ValueType};
use super::right::Server;
use super::string::StringRef;

use cache::Cache;

/// The longest value, in bytes, that the server stores in the header of its object (`OBJ_ENCODING_EMBSTR_SIZE_LIMIT`).
const LONGEST_PACKED: usize = 44;

/// An open key. The bytes that were read from it end before the next write to it. Dropping the value closes the key.
///
/// Writes to a key that was opened for reading have no effect.
pub struct Key<'k, 'c, M> {
    /// Null for an empty key that was opened for reading, and for a key in use that was opened for writing.
    raw: *mut raw::RedisModuleKey,
    mode: Mode,
    pub(super) ctx: &'k mut Context<'c, M>,
    name: StringRef<'k>,
    pub(super) cache: Cache,
}

impl<'c, M> Context<'c, M> {
    /// Opens a key of the selected database. The server deletes a key that has expired, and calls back with an event.
    pub fn open<'k>(&'k mut self, name: StringRef<'k>, mode: Mode) -> Key<'k, 'c, M> {
        let flags = match mode {
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are valid while this callback runs.
        let raw = unsafe { api!(RedisModule_OpenKey(self.raw(), name.raw(), flags as i32)) };
        Key { raw: raw.cast(), mode, ctx: self, name, cache: Cache::default() }
    }
}

impl<'k, 'c, M> Key<'k, 'c, M> {
    /// Returns the context.
    pub fn ctx(&self) -> &Context<'c, M> {
        self.ctx
    }

    /// Returns the right to use the server.
    #[inline(always)]
    pub fn server(&self) -> &Server {
        self.ctx.server()
    }

    /// Returns the right to call the server.
    pub fn server_mut(&mut self) -> &mut Server {
        self.ctx.server_mut()
    }

    /// Returns the name of the key.
    pub fn name(&self) -> StringRef<'k> {
        self.name
    }

    /// Returns whether the server has refused to open the key for writing, because a save without a fork reads it now
    /// (Valkey 9.2). Such a key looks empty, and nothing may be written or replicated.
    pub fn is_in_use(&self) -> bool {
        matches!(self.mode, Mode::Write) && self.raw.is_null()
    }

    /// Returns whether the key does not exist.
    pub fn is_empty(&self) -> bool {
        self.value_type() == ValueType::Empty
    }

    /// Returns the type of the value.
    pub fn value_type(&self) -> ValueType {
        // SAFETY: the key is open, or null because it is empty, which the function accepts.
        match unsafe { api!(RedisModule_KeyType(self.raw)) } as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => ValueType::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => ValueType::String,
            raw::REDISMODULE_KEYTYPE_HASH => ValueType::Hash,
            raw::REDISMODULE_KEYTYPE_ZSET => ValueType::SortedSet,
            _ => ValueType::Other,
        }
    }

    /// Returns the expiry time, or `None` if the key has none or is empty.
    pub fn expiry(&self) -> Option<UnixMs> {
        if self.is_empty() { None } else { self.expiry_of_value() }
    }

    /// Returns the expiry time of a key that the caller knows to hold a value, or `None` if the key has none. Redis 8.6 crashes
    /// when it is asked for that of an empty key, so a null check excludes such a key again.
    pub fn expiry_of_value(&self) -> Option<UnixMs> {
        if self.raw.is_null() {
            return None;
        }
        let read = || {
            // SAFETY: the key is open.
            let at = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
            (at != UnixMs::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
        };
        let known = self.cache.expiry.get();
        debug_assert!(known.is_none_or(|known| known == read()), "the cache of the expiry time is wrong");
        let expiry = known.unwrap_or_else(read);
        self.cache.expiry.set(Some(expiry));
        expiry
    }

    /// Returns the bytes of a String, or no bytes for any other value.
    pub fn string(&self) -> &[u8] {
        if self.raw.is_null() {
            return &[];
        }
        let mut len = 0;
        // SAFETY: the key is open; the bytes of a String stay until the key is written or closed, and both need `self`,
        // which the result borrows. For another value the server returns null.
        unsafe {
            let start = api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_READ as i32));
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// Sets the key to a String with this expiry time, or with none. Replaces a value of any type.
    #[inline(always)]
    pub fn set_string(&mut self, value: StringRef<'_>, expiry: Option<UnixMs>) {
        if !self.is_writable() {
            return;
        }
        let bytes = value.bytes();
        if bytes.len() > LONGEST_PACKED {
            // SAFETY: the key is open for writing; the server copies or counts `value`.
            let result = unsafe { api!(RedisModule_StringSet(self.raw, value.raw())) };
            debug_assert_eq!(result, OK, "the server refuses to set a String");
            self.cache.clear();
        } else {
            self.write_unpacked(bytes);
        }
        if let Some(at) = expiry {
            self.set_expiry(at);
        }
    }

    /// Sets the key to a String without expiry time. Its bytes are stored apart from the header of the object: the server would
    /// have to unpack a short value in the header for each read, which costs more than the rest of the read.
    #[inline(always)]
    fn write_unpacked(&mut self, bytes: &[u8]) {
        if !self.is_empty() {
            self.delete();
        }
        let mut len = 0;
        // SAFETY: the key is open for writing and empty, so the first call makes it a String of as many bytes, which
        // the second one returns; they stay valid while nothing else is called.
        unsafe {
            api!(RedisModule_StringTruncate(self.raw, bytes.len()));
            let start = api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_WRITE as i32));
            // A String of the wrong length is not written to: memory matters more than the value.
            let is_right = len == bytes.len() && !start.is_null();
            debug_assert!(is_right, "the server has created a String of another length");
            if is_right {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), len);
            }
        }
    }

    /// Sets the expiry time of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        if self.is_writable() {
            // SAFETY: the key is open for writing.
            let result = unsafe { api!(RedisModule_SetAbsExpire(self.raw, at)) };
            debug_assert_eq!(result, OK, "the server refuses the expiry time {at}");
            self.cache.expiry.set(None);
        }
    }

    /// Removes the expiry time of an existing key.
    pub fn remove_expiry(&mut self) {
        self.set_expiry(raw::REDISMODULE_NO_EXPIRE.into());
    }

    /// Deletes the key.
    pub fn delete(&mut self) {
        if self.is_writable() {
            // SAFETY: the key is open for writing.
            let result = unsafe { api!(RedisModule_DeleteKey(self.raw)) };
            debug_assert_eq!(result, OK, "the server refuses to delete a key");
            self.cache.clear();
        }
    }

    /// Calls a command of the server that concerns another key of the selected database, or a channel, which is its first
    /// argument. The command has the effects that it has in a script: events, replication, and clients that it wakes. The server
    /// checks no user's rights. Call it only where the module may write.
    ///
    /// Returns whether the server has executed the command. It has not if `rename-command` has changed the name of the command,
    /// or, in a cluster, if this node does not serve the slot. A command that concerns the open key itself is not called.
    pub fn call_alongside(&mut self, command: &CStr, arguments: &[StringRef<'_>]) -> bool {
        // The cache would not hold what the command leaves in the open key.
        if arguments.first().is_some_and(|concerned| concerned.bytes() == self.name.bytes()) {
            return false;
        }
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.bytes()).collect();
        was_executed(self.ctx.call(command, CallMode::Write, &arguments))
    }

    /// Returns whether the key is open for writing. Then `raw` is not null, even if the key is empty.
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.mode, Mode::Write) && !self.raw.is_null()
    }
}

impl<M> Drop for Key<'_, '_, M> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened in `open`, closed once.
            unsafe { api!(RedisModule_CloseKey(self.raw)) }
        }
    }
}
