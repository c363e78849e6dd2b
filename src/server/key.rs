//! Keys of the keyspace: Strings, and Hashes of one field.

use std::ffi::c_void;
use std::{ptr, slice};

use redis_module::raw;

use super::UnixMs;
use super::context::Context;
use super::kinds::{Mode, ValueType};
use super::panics::catch_panic;
use super::string::{NO_STRING, OwnedString, StringRef};

/// The longest value, in bytes, that the server packs into the header of an object (`OBJ_ENCODING_EMBSTR_SIZE_LIMIT`).
const LONGEST_PACKED: usize = 44;

/// An open key. What was read from it ends before the next write to it.
///
/// A key that was opened for reading is not written: such a call does nothing.
pub struct Key<'k, 'c, M> {
    /// Null for an empty key that was opened for reading.
    raw: *mut raw::RedisModuleKey,
    mode: Mode,
    ctx: &'k mut Context<'c, M>,
    name: StringRef<'k>,
}

impl<'c, M> Context<'c, M> {
    /// Opens a key of the selected database. An expired one is deleted, which calls back with an event.
    pub fn open<'k>(&'k mut self, name: StringRef<'k>, mode: Mode) -> Key<'k, 'c, M> {
        let flags = match mode {
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are valid while this callback runs.
        let raw = unsafe { api!(RedisModule_OpenKey(self.raw(), name.raw(), flags as i32)) };
        Key { raw: raw.cast(), mode, ctx: self, name }
    }
}

impl<'k, 'c, M> Key<'k, 'c, M> {
    pub fn ctx(&self) -> &Context<'c, M> {
        self.ctx
    }

    pub(super) fn ctx_mut(&mut self) -> &mut Context<'c, M> {
        self.ctx
    }

    pub fn name(&self) -> StringRef<'k> {
        self.name
    }

    pub fn is_empty(&self) -> bool {
        self.value_type() == ValueType::Empty
    }

    pub fn value_type(&self) -> ValueType {
        // SAFETY: the key is open, or null because it is empty, which the function takes.
        match unsafe { api!(RedisModule_KeyType(self.raw)) } as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => ValueType::Empty,
            raw::REDISMODULE_KEYTYPE_STRING => ValueType::String,
            raw::REDISMODULE_KEYTYPE_HASH => ValueType::Hash,
            _ => ValueType::Other,
        }
    }

    /// When the key expires; `None`: never, or it is empty.
    pub fn expiry(&self) -> Option<UnixMs> {
        if self.is_empty() { None } else { self.expiry_of_value() }
    }

    /// The same for a key that is known to hold a value.
    ///
    /// Of an empty one Redis 8.6 must not be asked: it crashes. So that is looked at again, at the price of a null check.
    pub fn expiry_of_value(&self) -> Option<UnixMs> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: the key is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
        (at != UnixMs::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    /// The bytes of a String; empty for anything else.
    pub fn string(&self) -> &[u8] {
        if self.raw.is_null() {
            return &[];
        }
        let mut len = 0;
        // SAFETY: the key is open; the bytes of a String stay until the key is written or closed, and both need `self`,
        // which the result borrows. Of another value the server shows none, and says null.
        unsafe {
            let start = api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_READ as i32));
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// Makes the key a String, whatever it was, with this expiry and no other.
    #[inline(always)]
    pub fn set_string(&mut self, value: StringRef<'_>, expiry: Option<UnixMs>) {
        if !self.is_writable() {
            return;
        }
        let bytes = value.bytes();
        if bytes.len() > LONGEST_PACKED {
            // SAFETY: the key is open for writing; the server copies or counts `value`.
            unsafe { api!(RedisModule_StringSet(self.raw, value.raw())) };
        } else {
            self.write_unpacked(bytes);
        }
        if let Some(at) = expiry {
            self.set_expiry(at);
        }
    }

    /// Makes the key a String without expiry whose bytes stand by themselves. The server packs a short value into the
    /// header of its object and would have to unpack it, which is the dearest part of a look at one.
    #[inline(always)]
    fn write_unpacked(&mut self, bytes: &[u8]) {
        if !self.is_empty() {
            self.delete();
        }
        let mut len = 0;
        // SAFETY: the key is open for writing and empty, so the first call makes it a String of as many bytes, which
        // the second one shows; they stay where they are while nothing else is called.
        unsafe {
            api!(RedisModule_StringTruncate(self.raw, bytes.len()));
            let start = api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_WRITE as i32));
            if len == bytes.len() && !start.is_null() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), len);
            }
        }
    }

    /// Sets a field of a Hash; an empty key becomes one. Nothing happens to a key that holds anything else.
    pub fn set_field(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        if !self.is_writable() {
            return;
        }
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open for writing; one pair and the null that ends the list, as the API wants it.
        unsafe { api!(RedisModule_HashSet(self.raw, flags, field.raw(), value.raw(), NO_STRING)) };
    }

    /// Sets the expiry of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        if self.is_writable() {
            // SAFETY: the key is open for writing.
            unsafe { api!(RedisModule_SetAbsExpire(self.raw, at)) };
        }
    }

    /// Empties the key.
    pub fn delete(&mut self) {
        if self.is_writable() {
            // SAFETY: the key is open for writing.
            unsafe { api!(RedisModule_DeleteKey(self.raw)) };
        }
    }

    /// Whether the key is open for writing; then there is a handle, also if it is empty.
    fn is_writable(&self) -> bool {
        matches!(self.mode, Mode::Write) && !self.raw.is_null()
    }

    /// Reads the only field of a Hash and its value. `None` for a Hash with more fields, and for anything else. A field that is
    /// `likely` spares a scan; `read` gets `None` as the name of that one.
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

    /// The value of a field of a Hash, if the field is there and the value is a Hash.
    fn field(&self, field: StringRef<'_>) -> Option<OwnedString> {
        let mut value: *mut raw::RedisModuleString = ptr::null_mut();
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open, and the server does nothing unless it holds a Hash; a field, where its value goes, and
        // the null that ends the list. The server makes the string for the module.
        unsafe {
            api!(RedisModule_HashGet(self.raw, flags, field.raw(), &raw mut value, NO_STRING));
            (!value.is_null()).then(|| OwnedString::from_raw(value))
        }
    }

    /// The last field that a scan of a Hash comes upon.
    fn scan(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        // A Hash of one field takes one round; a table that was large before it shrank takes a few.
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

/// Takes one pair of a Hash that is scanned into the `Option` that `sink` points at.
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
