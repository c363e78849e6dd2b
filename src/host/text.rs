//! The server's strings.

use std::marker::PhantomData;
use std::{ptr, slice};

use redis_module::raw;

use super::context::Context;
use crate::core::Refusal;

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

/// A string that is made once and kept, for a word that goes to replicas over and over.
pub struct Word(*mut raw::RedisModuleString);

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub struct Arguments<'a>(&'a [*mut raw::RedisModuleString]);

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
        unsafe { Self::adopt(ctx, api!(RedisModule_CreateString(ctx.raw(), bytes.as_ptr().cast(), bytes.len()))) }
    }

    /// # Safety
    /// `raw` is a string that the server has made for us, and nobody else gives it back.
    pub unsafe fn adopt(ctx: Context<'c>, raw: *mut raw::RedisModuleString) -> Self {
        // SAFETY: by contract the string lives until `drop`.
        Self { ctx, text: unsafe { Text::new(raw) } }
    }

    /// The string, for as long as it is not given back.
    pub fn text(&self) -> Text<'_> {
        self.text
    }
}

impl Drop for OwnedText<'_> {
    fn drop(&mut self) {
        // SAFETY: made for us (see `adopt`), freed once; the server counts references if it has kept it.
        unsafe { api!(RedisModule_FreeString(self.ctx.raw(), self.text.raw)) }
    }
}

impl Word {
    pub fn new(text: &'static str) -> Self {
        // SAFETY: the server copies the text, and needs no context for it.
        Self(unsafe { api!(RedisModule_CreateString(ptr::null_mut(), text.as_ptr().cast(), text.len())) })
    }

    pub fn raw(&self) -> *mut raw::RedisModuleString {
        self.0
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once; the server counts references if it has kept it.
        unsafe { api!(RedisModule_FreeString(ptr::null_mut(), self.0)) }
    }
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// `argv` holds `argc` strings of the server that live, unchanged, for `'a`.
    pub unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: i32) -> Self {
        let argc = usize::try_from(argc).unwrap_or(0);
        // SAFETY: by contract; an empty command line has no array to point at.
        Self(if argc == 0 { &[] } else { unsafe { slice::from_raw_parts(argv, argc) } })
    }

    /// The argument with this number, the command name being 0. The server has checked that those are there which the
    /// command cannot do without.
    pub fn text(self, number: usize) -> Result<Text<'a>, Refusal> {
        // SAFETY: by the contract of `new`.
        self.0.get(number).map(|&raw| unsafe { Text::new(raw) }).ok_or(Refusal::Arity)
    }

    /// The arguments from this number on, each looked at when it is asked for.
    pub fn words_from(self, number: usize) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: by the contract of `new`.
        self.0.get(number..).unwrap_or(&[]).iter().map(|&raw| unsafe { Text::new(raw) }.bytes())
    }
}

/// A null pointer where the API takes an optional string.
pub const NO_TEXT: *mut raw::RedisModuleString = ptr::null_mut();
