//! A key of the keyspace, read as a lock.

use std::borrow::Cow;
use std::ffi::c_void;
use std::{ptr, slice};

use redis_module::raw;

use super::context::Context;
use super::guard::guard;
use super::text::{NO_TEXT, OwnedText, Text};
use crate::core::{Held, Kind, LeaseEnd, Lock, Refusal, UnixMs, parse_integer};

/// The longest value, in bytes, that the server packs into the header of an object (`OBJ_ENCODING_EMBSTR_SIZE_LIMIT`).
const LONGEST_PACKED: usize = 44;

/// How a key is opened.
#[derive(Clone, Copy)]
pub enum Mode {
    Read,
    Write,
}

/// An open key. Opening an expired one deletes it, which calls back into the module's event handler.
pub struct Key<'c> {
    raw: *mut raw::RedisModuleKey,
    pub ctx: Context<'c>,
    pub name: Text<'c>,
}

/// The type of value behind a key, as far as it matters here.
#[derive(PartialEq, Eq)]
enum Value {
    None,
    String,
    Hash,
    Other,
}

impl<'c> Key<'c> {
    pub fn open(ctx: Context<'c>, name: Text<'c>, mode: Mode) -> Self {
        let mode = match mode {
            Mode::Read => raw::REDISMODULE_READ,
            Mode::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        // SAFETY: context and name are valid while this callback runs.
        let raw = unsafe { api!(RedisModule_OpenKey(ctx.raw(), name.raw(), mode as i32)) };
        Self { raw: raw.cast(), ctx, name }
    }

    /// What the key says about its lock. Borrows from the value, so it ends before the next write.
    pub fn read(&self) -> Result<Lock<'_, impl LeaseEnd>, Refusal> {
        self.read_for(None)
    }

    /// The same, when the holder is likely to be `caller`.
    #[inline(always)]
    pub fn read_for<'k>(&'k self, caller: Option<Text<'k>>) -> Result<Lock<'k, impl LeaseEnd>, Refusal> {
        let (kind, owner, holds) = match self.value() {
            Value::None => return Ok(Lock::Free),
            Value::String => (Kind::Mutex, Cow::Borrowed(self.string()), 1),
            Value::Hash => {
                let (owner, holds) = self.only_field(caller).ok_or(Refusal::WrongType)?;
                (Kind::Reentrant, owner, holds)
            }
            Value::Other => return Err(Refusal::WrongType),
        };
        Ok(Lock::Held(Held { kind, owner, holds, lease_end: Expiry(self) }))
    }

    /// When the key expires, whatever it holds.
    pub fn expiry(&self) -> Option<UnixMs> {
        if self.is_empty() { None } else { self.expiry_of_value() }
    }

    /// The integer that a String is, `None` for an empty key.
    pub fn integer(&self) -> Result<Option<i64>, Refusal> {
        match self.value() {
            Value::None => Ok(None),
            Value::String => parse_integer(self.string()).map(Some).ok_or(Refusal::NotAnInteger),
            Value::Hash | Value::Other => Err(Refusal::WrongType),
        }
    }

    /// Makes the key a String, whatever it was, with this expiry and no other.
    #[inline(always)]
    pub fn set_string(&mut self, value: Text<'_>, expiry: Option<UnixMs>) {
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
    /// header of its object and would have to unpack it, which is the dearest part of a look at a lock.
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
            if len == bytes.len() {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), len);
            }
        }
    }

    /// Sets a field of the Hash; an empty key becomes one. The key must not hold anything else.
    pub fn set_field(&mut self, field: Text<'_>, value: Text<'_>) {
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open for writing; one pair and the null that ends the list, as the API wants it.
        unsafe { api!(RedisModule_HashSet(self.raw, flags, field.raw(), value.raw(), NO_TEXT)) };
    }

    /// Sets the expiry of an existing key.
    pub fn set_expiry(&mut self, at: UnixMs) {
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_SetAbsExpire(self.raw, at)) };
    }

    /// Empties the key.
    pub fn delete(&mut self) {
        // SAFETY: the key is open for writing.
        unsafe { api!(RedisModule_DeleteKey(self.raw)) };
    }

    pub fn is_empty(&self) -> bool {
        self.value() == Value::None
    }

    fn value(&self) -> Value {
        // SAFETY: the key is open, or null because it is empty, which the function takes.
        match unsafe { api!(RedisModule_KeyType(self.raw)) } as isize {
            raw::REDISMODULE_KEYTYPE_EMPTY => Value::None,
            raw::REDISMODULE_KEYTYPE_STRING => Value::String,
            raw::REDISMODULE_KEYTYPE_HASH => Value::Hash,
            _ => Value::Other,
        }
    }

    /// When the key, which is not empty, expires. (Of an empty one Redis 8.6 must not be asked: it crashes.)
    fn expiry_of_value(&self) -> Option<UnixMs> {
        // SAFETY: the key is open and holds a value.
        let at = unsafe { api!(RedisModule_GetAbsExpire(self.raw)) };
        (at != UnixMs::from(raw::REDISMODULE_NO_EXPIRE)).then_some(at)
    }

    fn string(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the key is open and holds a String; the bytes stay until the key is written or closed, and both need
        // `self`, which the result borrows.
        unsafe {
            let start = api!(RedisModule_StringDMA(self.raw, &raw mut len, raw::REDISMODULE_READ as i32));
            if start.is_null() { &[] } else { slice::from_raw_parts(start.cast(), len) }
        }
    }

    /// The field of a Hash that has exactly one, if its value is a number of holds. A field that is `likely` spares a
    /// scan.
    fn only_field<'k>(&'k self, likely: Option<Text<'k>>) -> Option<(Cow<'k, [u8]>, i64)> {
        // SAFETY: the key is open.
        if unsafe { api!(RedisModule_ValueLength(self.raw)) } != 1 {
            return None;
        }
        let found = likely.and_then(|field| Some((Cow::Borrowed(field.bytes()), self.number_in(field)?)));
        let scanned = || {
            let (field, value) = self.scan()?;
            Some((Cow::Owned(field), parse_integer(&value)?))
        };
        found.or_else(scanned).filter(|&(_, holds)| holds >= 1)
    }

    /// The integer in a field of a Hash, if the field is there and it is one.
    fn number_in(&self, field: Text<'_>) -> Option<i64> {
        let mut value: *mut raw::RedisModuleString = ptr::null_mut();
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open and holds a Hash; a field, where its value goes, and the null that ends the list.
        unsafe { api!(RedisModule_HashGet(self.raw, flags, field.raw(), &raw mut value, NO_TEXT)) };
        if value.is_null() {
            return None;
        }
        // SAFETY: the server made this string for us.
        parse_integer(unsafe { OwnedText::adopt(self.ctx, value) }.text().bytes())
    }

    /// The last field that a scan of the Hash comes upon.
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

/// When an open key expires, asked when it is needed.
struct Expiry<'k>(&'k Key<'k>);

impl LeaseEnd for Expiry<'_> {
    fn get(&self) -> Option<UnixMs> {
        self.0.expiry_of_value()
    }
}

impl Drop for Key<'_> {
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
    guard("scan", (), || {
        // SAFETY: the server lends both strings for the time of this call.
        let [field, value] = unsafe { [Text::new(field), Text::new(value)] };
        // SAFETY: `Key::scan` gave this pointer and waits for this call.
        let pair = unsafe { &mut *sink.cast::<Option<(Vec<u8>, Vec<u8>)>>() };
        *pair = Some((field.bytes().to_vec(), value.bytes().to_vec()));
    });
}
