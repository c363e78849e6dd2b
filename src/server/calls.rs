//! Calls of the server's commands, and the replies to them.
//!
//! [`CallReply`] owns a reply and frees it. A [`ReplyPart`] borrows it, so no text of a reply outlives the reply.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use redis_module::raw::{self, RedisModuleCallReply};

/// Calls a command of the server, in an unsafe block: `call!(ctx, c"CLIENT", c"c", c"LIST".as_ptr())`. Evaluates to
/// `Option<CallReply>`, which is `None` if the server has refused the call; `errno` says why until the next call.
///
/// The context must be valid during the call, and the arguments must match the format: "c" takes a C string, "s" a string of
/// the server, "v" an array of them and its length, "b" bytes and their number. "!", "E" and "S" take nothing.
macro_rules! call {
    ($ctx:expr, $command:expr, $format:expr $(, $argument:expr)* $(,)?) => {
        $crate::server::calls::CallReply::from_raw(
            api!(RedisModule_Call($ctx, $command.as_ptr(), $format.as_ptr() $(, $argument)*))
        )
    };
}

/// The reply to a command that the module called. Dropping it frees it.
pub(super) struct CallReply(NonNull<RedisModuleCallReply>);

/// A reply, or an element of one, that lives for `'r`.
#[derive(Clone, Copy)]
pub(super) struct ReplyPart<'r>(NonNull<RedisModuleCallReply>, PhantomData<&'r CallReply>);

impl CallReply {
    /// Takes ownership of a reply. Returns `None` for null.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a reply that the module owns and that no other code frees.
    pub(super) unsafe fn from_raw(raw: *mut RedisModuleCallReply) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Returns whether the server replied with an error.
    pub(super) fn is_error(&self) -> bool {
        self.whole().is(raw::REDISMODULE_REPLY_ERROR)
    }

    /// Returns the reply itself, as a part.
    pub(super) fn whole(&self) -> ReplyPart<'_> {
        ReplyPart(self.0, PhantomData)
    }

    /// Returns the element of an array at an index that counts from 0. Returns `None` if the array is shorter, or the reply is no
    /// array.
    pub(super) fn element(&self, index: usize) -> Option<ReplyPart<'_>> {
        // SAFETY: the reply lives as long as this value, and so do its elements.
        let element = unsafe { api!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), index)) };
        NonNull::new(element).map(|element| ReplyPart(element, PhantomData))
    }

    /// Returns the elements of an array. Returns no elements if the reply is no array.
    pub(super) fn elements(&self) -> impl Iterator<Item = ReplyPart<'_>> {
        (0..).map_while(|index| self.element(index))
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: only this value frees the reply, and all parts of it borrow this value.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}

impl<'r> ReplyPart<'r> {
    /// Returns whether the reply is of a kind, one of `REDISMODULE_REPLY_*`.
    fn is(self, kind: isize) -> bool {
        // SAFETY: the reply lives for `'r`.
        unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) as isize == kind }
    }

    /// Returns the bytes of a string or an error, `None` for another kind of reply.
    pub(super) fn bytes(self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the reply lives for `'r`, and so does its text; the server returns null if the reply has no text.
        unsafe {
            let start = api!(RedisModule_CallReplyStringPtr(self.0.as_ptr(), &raw mut len));
            if start.is_null() { None } else { Some(slice::from_raw_parts(start.cast(), len)) }
        }
    }

    /// Returns the text, in which invalid UTF-8 is replaced. It is empty if the reply has no text.
    pub(super) fn text(self) -> Cow<'r, str> {
        String::from_utf8_lossy(self.bytes().unwrap_or_default())
    }

    /// Returns the integer that the reply is.
    pub(super) fn integer(self) -> i64 {
        debug_assert!(self.is(raw::REDISMODULE_REPLY_INTEGER), "the reply is no integer");
        // SAFETY: the reply lives for `'r`.
        unsafe { api!(RedisModule_CallReplyInteger(self.0.as_ptr())) }
    }
}

/// Returns whether the server executed a command, according to its reply.
pub(super) fn was_executed(reply: Option<CallReply>) -> bool {
    reply.is_some_and(|reply| !reply.is_error())
}

/// Returns the value of a field in a line of `name=value`, as INFO and CLIENT LIST have them.
pub(super) fn field_in<'l>(line: &'l str, separator: char, name: &str) -> Option<&'l str> {
    line.split(separator).find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}
