//! Keys that hold a Hash with one field.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::Key;
use crate::server::kinds::ValueType;
use crate::server::panics::catch_panic;
use crate::server::string::{NO_STRING, OwnedString, StringRef};

/// The name of a field, and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// The most calls of a scan. A Hash with one field takes one call, or a few if its table was large before it shrank.
const MAX_SCAN_CALLS: usize = 1 << 16;

impl<M> Key<'_, '_, M> {
    /// Sets a field of a Hash, which is created if the key is empty. Has no effect on any other value.
    pub fn set_field(&mut self, field: StringRef<'_>, value: StringRef<'_>) {
        if !self.is_writable() {
            return;
        }
        let flags = raw::REDISMODULE_HASH_NONE as i32;
        // SAFETY: the key is open for writing; one pair and the null that ends the list, as the API wants it.
        unsafe { api!(RedisModule_HashSet(self.raw, flags, field.raw(), value.raw(), NO_STRING)) };
    }

    /// Calls `read` with the name and the value of the only field of a Hash, and returns its result.
    ///
    /// Returns `None` if the Hash has more fields, and for any other value. If the field is `likely`, no scan is needed, and
    /// `read` gets `None` as the name.
    pub fn only_field<R>(&self, likely: Option<StringRef<'_>>, read: impl Fn(Option<&[u8]>, &[u8]) -> R) -> Option<R> {
        // SAFETY: the key is open.
        if unsafe { api!(RedisModule_ValueLength(self.raw)) } != 1 {
            return None;
        }
        if let Some(value) = likely.and_then(|field| self.field(field)) {
            return Some(read(None, value.as_ref().bytes()));
        }
        // The members of a Set have no values.
        let pair = if self.value_type() == ValueType::Hash { self.scan() } else { None };
        pair.map(|(field, value)| read(Some(&field), &value))
    }

    /// Returns the value of a field, if the value of the key is a Hash and has the field.
    fn field(&self, field: StringRef<'_>) -> Option<OwnedString> {
        let (mut value, flags) = (NO_STRING, raw::REDISMODULE_HASH_NONE as i32);
        // SAFETY: the key is open, and the server does nothing unless it holds a Hash; a field, the place for its value, and the
        // null that ends the list. The server creates the string for the module.
        unsafe {
            api!(RedisModule_HashGet(self.raw, flags, field.raw(), &raw mut value, NO_STRING));
            OwnedString::from_raw(value)
        }
    }

    /// Returns the last field that a scan of a Hash finds, and its value.
    fn scan(&self) -> Option<Pair> {
        let mut pair: Option<Pair> = None;
        // SAFETY: the cursor is created and destroyed here; `pair` outlives the calls that fill it.
        unsafe {
            let cursor = api!(RedisModule_ScanCursorCreate());
            let sink = ptr::from_mut(&mut pair).cast::<c_void>();
            let has_more = |_: &_| api!(RedisModule_ScanKey(self.raw, cursor, Some(keep_pair), sink)) != 0;
            (0..MAX_SCAN_CALLS).take_while(has_more).for_each(drop);
            api!(RedisModule_ScanCursorDestroy(cursor));
        }
        pair
    }
}

/// Stores a field and its value in the `Option` that `sink` points to.
unsafe extern "C" fn keep_pair(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    sink: *mut c_void,
) {
    catch_panic("scan", (), |_| {
        // SAFETY: the server lends both strings until this call returns. `Key::scan` passed the pointer, and does not use the
        // option until then.
        unsafe {
            let [field, value] = [field, value].map(|string| StringRef::new(string).bytes().to_vec());
            *sink.cast::<Option<Pair>>() = Some((field, value));
        }
    });
}
