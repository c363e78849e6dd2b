//! Keys of the keyspace: Strings, and Hashes with one field.

use std::ffi::c_void;
use std::{ptr, slice};

use redis_module::raw;

use super::UnixMs;
use super::context::Context;
use super::kinds::{Mode, ValueType};
use super::known::Known;
use super::panics::catch_panic;
use super::string::{NO_STRING, OwnedString, StringRef};

/// The longest value, in bytes, that the server stores in the header of its object (`OBJ_ENCODING_EMBSTR_SIZE_LIMIT`).
const LONGEST_PACKED: usize = 44;

/// An open key. What was read from it ends before the next write to it.
///
/// Writes to a key that was opened for reading have no effect.
pub struct Key<'k, 'c, M> {
    /// Null for an empty key that was opened for reading, and for a key in use that was opened for writing.
    raw: *mut raw::RedisModuleKey,
    mode: Mode,
    ctx: &'k mut Context<'c, M>,
    name: StringRef<'k>,
    known: Known,
}

impl<'c, M> Context<'c, M> {
    /// Opens a key of the selected database. A key that has expired is deleted, which calls back with an event.
    pub fn open<'k>(&'k mut self, name: StringRef<'k>, mode: Mode) -> Key<'k, 'c, M> {
        let flags = match mode {
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are valid while this callback runs.
        let raw = unsafe { api!(RedisModule_OpenKey(self.raw(), name.raw(), flags as i32)) };
        Key { raw: raw.cast(), mode, ctx: self, name, known: Known::default() }
    }
}

impl<'k, 'c, M> Key<'k, 'c, M> {
    /// Returns the context.
    pub fn ctx(&self) -> &Context<'c, M> {
        self.ctx
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleKey {
        self.raw
    }

    pub(super) fn ctx_mut(&mut self) -> &mut Context<'c, M> {
        self.ctx
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
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
        // SAFETY: the key is open, or null because it is empty, which the function takes.
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

    /// Like [`expiry`](Self::expiry), for a key that is known to hold a value.
    ///
    /// Redis 8.6 crashes when it is asked for the expiry time of an empty key, so that is ruled out again here, at the
    /// cost of a null check.
    pub fn expiry_of_value(&self) -> Option<UnixMs> {
        if self.raw.is_null() {
            return None;
        }
        if let Some(known) = self.known.expiry.get() {
            return known;
        }
        // SAFETY: the key is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
        let expiry = (at != UnixMs::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at);
        self.known.expiry.set(Some(expiry));
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
            unsafe { api!(RedisModule_StringSet(self.raw, value.raw())) };
            self.known.forget();
        } else {
            self.write_unpacked(bytes);
        }
        if let Some(at) = expiry {
            self.set_expiry(at);
        }
    }

    /// Sets the key to a String without expiry time, whose bytes are stored apart from the object's header.
    ///
    /// The server stores a short value in the header, and would have to unpack it for each look, which costs more than
    /// the rest of the look.
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
            if len == bytes.len() && !start.is_null() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), len);
            }
        }
    }

    /// Sets a field of a Hash, which is created if the key is empty. Has no effect on any other value.
    pub fn set_field(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        if !self.is_writable() {
            return;
        }
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open for writing; one pair and the null that ends the list, as the API wants it.
        unsafe { api!(RedisModule_HashSet(self.raw, flags, field.raw(), value.raw(), NO_STRING)) };
    }

    /// Sets the expiry time of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        if self.is_writable() {
            // SAFETY: the key is open for writing.
            unsafe { api!(RedisModule_SetAbsExpire(self.raw, at)) };
            self.known.expiry.set(None);
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
            unsafe { api!(RedisModule_DeleteKey(self.raw)) };
            self.known.forget();
        }
    }

    /// Returns whether the key is open for writing. Then `raw` is not null, even if the key is empty.
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.mode, Mode::Write) && !self.raw.is_null()
    }

    /// Calls `read` with the name and the value of the only field of a Hash, and returns its result.
    ///
    /// Returns `None` if the Hash has more fields, and for any other value. If the field is `likely`, no scan is
    /// needed, and `read` gets `None` as its name.
    pub fn only_field<R>(&self, likely: Option<StringRef<'_>>, read: impl Fn(Option<&[u8]>, &[u8]) -> R) -> Option<R> {
        // SAFETY: the key is open.
        if unsafe { api!(RedisModule_ValueLength(self.raw)) } != 1 {
            return None;
        }
        if let Some(value) = likely.and_then(|field| self.field(field)) {
            return Some(read(None, value.as_ref().bytes()));
        }
        // The members of a Set have no values.
        if self.value_type() != ValueType::Hash {
            return None;
        }
        self.scan().map(|(field, value)| read(Some(&field), &value))
    }

    /// Returns the value of a field, if the value of the key is a Hash and has the field.
    fn field(&self, field: StringRef<'_>) -> Option<OwnedString> {
        let mut value: *mut raw::RedisModuleString = ptr::null_mut();
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open, and the server does nothing unless it holds a Hash; a field, where its value goes,
        // and the null that ends the list. The server creates the string for the module.
        unsafe {
            api!(RedisModule_HashGet(self.raw, flags, field.raw(), &raw mut value, NO_STRING));
            (!value.is_null()).then(|| OwnedString::from_raw(value))
        }
    }

    /// Returns the last field that a scan of a Hash finds, and its value.
    fn scan(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        // A Hash with one field takes one round, or a few if its table was large before it shrank.
        const MAX_ROUNDS: usize = 1 << 16;
        let mut pair: Option<(Vec<u8>, Vec<u8>)> = None;
        // SAFETY: the cursor is made and given back here; `pair` outlives the calls that fill it.
        unsafe {
            let cursor = api!(RedisModule_ScanCursorCreate());
            let sink = ptr::from_mut(&mut pair).cast::<c_void>();
            let next = || api!(RedisModule_ScanKey(self.raw, cursor, Some(keep_pair), sink)) != 0;
            for _ in 0..MAX_ROUNDS {
                if !next() {
                    break;
                }
            }
            api!(RedisModule_ScanCursorDestroy(cursor));
        }
        pair
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

/// Stores a field and its value in the `Option` that `sink` points to.
unsafe extern "C" fn keep_pair(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    sink: *mut c_void,
) {
    catch_panic("scan", (), || {
        // SAFETY: the server lends both strings for the time of this call.
        let [field, value] = unsafe { [StringRef::new(field), StringRef::new(value)] };
        // SAFETY: `Key::scan` gave this pointer and waits for this call.
        let pair = unsafe { &mut *sink.cast::<Option<(Vec<u8>, Vec<u8>)>>() };
        *pair = Some((field.bytes().to_vec(), value.bytes().to_vec()));
    });
}
