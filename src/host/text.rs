//! The server's strings.

use std::marker::PhantomData;
use std::ops::Deref;
use std::{ptr, slice};

use redis_module::raw;

use super::context::Context;
use crate::command::MAX_ARGUMENTS;

/// A string that the server owns for as long as `'a`: an argument, or the name in an event.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: *mut raw::RedisModuleString,
    owner: PhantomData<&'a [u8]>,
}

/// A string that we made and give back.
pub struct OwnedText<'c> {
    ctx: Context<'c>,
    text: Text<'c>,
}

/// The arguments of a command, its name first.
pub struct Arguments<'a> {
    texts: &'a [*mut raw::RedisModuleString],
    bytes: [&'a [u8]; MAX_ARGUMENTS],
}

impl<'a> Text<'a> {
    /// # Safety
    /// `raw` is a string of the server that lives, unchanged, for `'a`.
    pub unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self { raw, owner: PhantomData }
    }

    pub fn raw(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string lives for 'a and is not changed (see `new`), and so do the bytes the server shows of it.
        unsafe {
            let start = api!(RedisModule_StringPtrLen(self.raw, &raw mut len));
            slice::from_raw_parts(start.cast(), len)
        }
    }
}

impl<'c> OwnedText<'c> {
    pub fn new(ctx: Context<'c>, bytes: &[u8]) -> Self {
        // SAFETY: the server copies `bytes`, which are valid for their length.
        let raw = unsafe { api!(RedisModule_CreateString(ctx.raw(), bytes.as_ptr().cast(), bytes.len())) };
        // SAFETY: the string is ours until `drop`, and `self` does not outlive itself.
        Self { ctx, text: unsafe { Text::new(raw) } }
    }
}

impl<'c> Deref for OwnedText<'c> {
    type Target = Text<'c>;

    fn deref(&self) -> &Self::Target {
        &self.text
    }
}

impl Drop for OwnedText<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once; the server counts references if it has kept it.
        unsafe { api!(RedisModule_FreeString(self.ctx.raw(), self.text.raw)) }
    }
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// `argv` holds `argc` strings of the server that live, unchanged, for `'a`.
    pub unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: i32) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // SAFETY: by contract; an empty command line has no array to point at.
        let texts = if argc == 0 { &[][..] } else { unsafe { slice::from_raw_parts(argv, argc) } };
        let mut bytes: [&[u8]; MAX_ARGUMENTS] = [&[]; MAX_ARGUMENTS];
        for (slot, &raw) in bytes.iter_mut().zip(texts) {
            // SAFETY: by contract.
            *slot = unsafe { Text::new(raw) }.bytes();
        }
        Self { texts, bytes }
    }

    /// Everything behind the command name, or `None` if there is more than any command takes.
    pub fn behind_name(&self) -> Option<&[&'a [u8]]> {
        self.bytes.get(1..self.texts.len())
    }

    /// The argument with this number, the command name being 0.
    pub fn text(&self, number: usize) -> Option<Text<'a>> {
        // SAFETY: by the contract of `new`.
        self.texts.get(number).map(|&raw| unsafe { Text::new(raw) })
    }
}

/// A null pointer where the API takes an optional string.
pub const NO_TEXT: *mut raw::RedisModuleString = ptr::null_mut();
