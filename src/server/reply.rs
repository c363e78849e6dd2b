//! Replies to clients. An array or map must be followed by exactly as many elements as it announces.

use std::ffi::{CStr, CString};

use super::context::Context;
use super::panics::INTERNAL_ERROR;
use super::right::Server;

impl<M> Context<'_, M> {
    /// Replies with an integer.
    pub fn reply_integer(&mut self, value: i64) {
        // SAFETY: the context is valid. If it is not that of a command or of a reply callback, the server ignores the call.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.raw(), value)) };
    }

    /// Replies with nil.
    pub fn reply_nil(&mut self) {
        // SAFETY: as in `reply_integer`.
        unsafe { api!(RedisModule_ReplyWithNull(self.raw())) };
    }

    /// Replies with an error. `text` begins with the error code in upper case, under which the server counts the error.
    pub fn reply_error(&mut self, text: &str) {
        debug_assert!(text.starts_with(|first: char| first.is_ascii_uppercase()), "no error code in {text:?}");
        let text = CString::new(text).unwrap_or_default(); // No error has a NUL.
        // SAFETY: as in `reply_integer`; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError(self.raw(), text.as_ptr())) };
    }

    /// Replies with a simple string.
    pub fn reply_simple(&mut self, text: &CStr) {
        // SAFETY: as in `reply_integer`; the server copies the text.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw(), text.as_ptr())) };
    }

    /// Replies with a bulk string.
    pub fn reply_bytes(&mut self, bytes: &[u8]) {
        // SAFETY: as in `reply_integer`; the server copies the bytes.
        unsafe { api!(RedisModule_ReplyWithStringBuffer(self.raw(), bytes.as_ptr().cast(), bytes.len())) };
    }

    /// Begins an array of `len` elements, which are the next `len` replies.
    pub fn reply_array(&mut self, len: usize) {
        // SAFETY: as in `reply_integer`.
        unsafe { api!(RedisModule_ReplyWithArray(self.raw(), len as _)) };
    }

    /// Begins a map of `len` pairs, which are the next `2 * len` replies. In RESP2 this is a flat array.
    pub fn reply_map(&mut self, len: usize) {
        // SAFETY: as in `reply_integer`.
        unsafe { api!(RedisModule_ReplyWithMap(self.raw(), len as _)) };
    }
}

/// Makes the reply to a blocked client. It can do nothing else, because the server may ask for the reply inside a call of the
/// module.
pub struct Replier<'c>(pub(super) Context<'c, ()>);

impl Replier<'_> {
    /// Returns the right to use the server.
    pub fn server(&self) -> &Server {
        self.0.server()
    }

    /// Replies with an integer.
    pub fn integer(&mut self, value: i64) {
        self.0.reply_integer(value);
    }

    /// Replies with nil.
    pub fn nil(&mut self) {
        self.0.reply_nil();
    }

    /// Replies with an error, see [`Context::reply_error`].
    pub fn error(&mut self, text: &str) {
        self.0.reply_error(text);
    }

    /// Replies with the error of a command that has panicked.
    pub fn internal_error(&mut self) {
        self.0.reply_error(INTERNAL_ERROR);
    }
}
