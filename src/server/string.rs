//! The server's strings, which may be any bytes.

use std::marker::PhantomData;
use std::{ptr, slice};

use redis_module::raw;

/// A string that the server owns for at least `'a`: an argument, or the key of an event.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct StringRef<'a> {
    raw: *mut raw::RedisModuleString,
    owner: PhantomData<&'a [u8]>,
}

/// A string that the module owns. Dropping it frees it.
pub struct OwnedString(*mut raw::RedisModuleString);

/// The arguments of a command, of which the command name is number 0.
#[derive(Clone, Copy)]
pub struct Arguments<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> StringRef<'a> {
    /// Creates a reference to a string of the server.
    ///
    /// # Safety
    ///
    /// `raw` is a string of the server that lives, unchanged, for `'a`.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        debug_assert!(!raw.is_null(), "a string of the server is null");
        Self { raw, owner: PhantomData }
    }

    pub(super) fn raw(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    /// Returns the bytes of the string.
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string lives for 'a and is not changed (see `new`), and so do the bytes the server shows of it.
        unsafe {
            let start = api!(RedisModule_StringPtrLen(self.raw, &raw mut len));
            slice::from_raw_parts(start.cast(), len)
        }
    }
}

impl OwnedString {
    /// Creates a string with a copy of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: the server copies `bytes` into a new string, and needs no context for it.
        Self(unsafe { api!(RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) })
    }

    /// Takes ownership of a string of the server. Returns `None` for null.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a string that the server has created for the module, and no other code frees it.
    pub(super) unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Option<Self> {
        if raw.is_null() { None } else { Some(Self(raw)) }
    }

    /// Returns a reference to the string.
    pub fn as_ref(&self) -> StringRef<'_> {
        // SAFETY: the string lives until `drop`.
        unsafe { StringRef::new(self.0) }
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        // SAFETY: created for the module, and freed once; the server counts references if it has kept the string.
        unsafe { api!(RedisModule_FreeString(ptr::null_mut(), self.0)) }
    }
}

impl<'a> Arguments<'a> {
    /// Creates the arguments from the server's.
    ///
    /// # Safety
    ///
    /// `argv` points to `argc` strings of the server, at least one, that live, unchanged, for `'a`.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: i32) -> Self {
        // SAFETY: by contract.
        Self(unsafe { slice::from_raw_parts(argv, argc as usize) })
    }

    /// Returns the arguments and their number, as the server has passed them.
    pub(super) fn raw(self) -> (*mut *mut raw::RedisModuleString, i32) {
        (self.0.as_ptr().cast_mut(), self.0.len() as i32)
    }

    /// Returns the argument with this number, `None` if there are fewer. The command name is number 0.
    pub fn get(self, number: usize) -> Option<StringRef<'a>> {
        // SAFETY: by the contract of `new`.
        self.0.get(number).map(|&raw| unsafe { StringRef::new(raw) })
    }

    /// Returns the bytes of the arguments from this number on. Returns no arguments if there are fewer.
    pub fn arguments_from(self, number: usize) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: by the contract of `new`.
        self.0.iter().skip(number).map(|&raw| unsafe { StringRef::new(raw) }.bytes())
    }
}

/// A null pointer, where the API takes an optional string.
pub(super) const NO_STRING: *mut raw::RedisModuleString = ptr::null_mut();
