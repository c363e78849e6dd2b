//! Calls of the server's commands, and the replies to them.

use std::borrow::Cow;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::{io, slice};

use redis_module::raw::{self, RedisModuleCallReply};

use super::ClientId;
use super::context::Context;
use super::string::OwnedString;

/// The way in which a command is called.
#[derive(Clone, Copy)]
pub(super) enum CallMode {
    /// The command is not replicated.
    Read,
    /// The command is replicated.
    Write,
    /// As from a script. A refusal is an error reply: Valkey 9.1 crashes when it refuses such a call without one.
    Script,
}

/// The reply to a command that the module called. Dropping it frees it.
pub(super) struct CallReply(NonNull<RedisModuleCallReply>);

/// A reply, or an element of one, that lives for `'r`, as its text does.
#[derive(Clone, Copy)]
pub(super) struct ReplyPart<'r>(NonNull<RedisModuleCallReply>, PhantomData<&'r CallReply>);

impl<M> Context<'_, M> {
    /// Calls a command of the server.
    ///
    /// # Errors
    ///
    /// The `errno` by which the server says why it has refused the call.
    pub(super) fn call(&self, command: &CStr, mode: CallMode, arguments: &[&[u8]]) -> io::Result<CallReply> {
        let format = match mode {
            CallMode::Read => c"v",
            CallMode::Write => c"!v",
            CallMode::Script => c"ESv",
        };
        let arguments: Vec<_> = arguments.iter().map(|bytes| OwnedString::new(bytes)).collect();
        let strings: Vec<_> = arguments.iter().map(|argument| argument.as_ref().raw()).collect();
        let (command, format, array, len) = (command.as_ptr(), format.as_ptr(), strings.as_ptr(), strings.len());
        // SAFETY: the context is valid; "v" takes an array of strings, which live until this function returns, and their number.
        let reply = unsafe { api!(RedisModule_Call(self.raw(), command, format, array, len)) };
        NonNull::new(reply).map(CallReply).ok_or_else(io::Error::last_os_error)
    }

    /// Returns whether the server has a command of this name. The command must be one that the server refuses without arguments.
    pub fn has_command(&self, name: &'static CStr) -> bool {
        self.call(name, CallMode::Read, &[]).map_or_else(|error| error.raw_os_error() != Some(libc::ENOENT), |_| true)
    }

    /// Returns whether CLIENT LIST shows a client, or `true` if `rename-command` has changed the name of CLIENT.
    #[cold]
    pub(super) fn is_listed(&self, id: ClientId) -> bool {
        let reply = self.call(c"CLIENT", CallMode::Read, &[b"LIST", b"ID", id.to_string().as_bytes()]);
        reply.map_or(true, |reply| reply.whole().bytes().is_some_and(|line| !line.is_empty()))
    }
}

impl CallReply {
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
pub(super) fn was_executed(reply: io::Result<CallReply>) -> bool {
    reply.is_ok_and(|reply| !reply.whole().is(raw::REDISMODULE_REPLY_ERROR))
}
