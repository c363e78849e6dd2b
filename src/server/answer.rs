//! What the server answers to a command that the module sends it.

use std::borrow::Cow;
use std::ffi::CStr;
use std::{ptr, slice};

use redis_module::raw::{RedisModuleCallReply, RedisModuleCtx};

/// The answer to a command: a text, or a list of texts.
pub(super) struct Answer(ptr::NonNull<RedisModuleCallReply>);

impl Answer {
    /// Sends a command with a subcommand, and with one argument behind it if there is one. Returns `None` if there is no
    /// such command, because it has another name.
    ///
    /// # Safety
    ///
    /// `ctx` is a context of the module that lives.
    pub(super) unsafe fn to(
        ctx: *mut RedisModuleCtx,
        command: &CStr,
        subcommand: &CStr,
        argument: Option<&CStr>,
    ) -> Option<Self> {
        let (command, subcommand) = (command.as_ptr(), subcommand.as_ptr());
        // SAFETY: the context by contract; "c" takes C strings. A reply that is not null is the module's to free.
        let reply = unsafe {
            match argument {
                None => api!(RedisModule_Call(ctx, command, c"c".as_ptr(), subcommand)),
                Some(argument) => api!(RedisModule_Call(ctx, command, c"cc".as_ptr(), subcommand, argument.as_ptr())),
            }
        };
        ptr::NonNull::new(reply).map(Self)
    }

    /// Returns the text, whose bytes that are not UTF-8 are replaced; empty if this is a list or an error.
    pub(super) fn text(&self) -> Cow<'_, str> {
        // SAFETY: the reply lives as long as this value.
        unsafe { text_of(self.0.as_ptr()) }
    }

    /// Returns the texts of a list, as [`text`](Self::text) does; none if this is a text.
    pub(super) fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let element = |index| {
            // SAFETY: the reply lives as long as this value, and its elements too; one that is not there is null.
            let element = unsafe { api!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), index)) };
            // SAFETY: as above.
            (!element.is_null()).then(|| unsafe { text_of(element) })
        };
        (0..).map_while(element)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: freed here only, and no text of it outlives this value.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}

/// Returns the value of a field in a line of `name=value`, as INFO and CLIENT LIST have them.
pub(super) fn value_in<'l>(line: &'l str, separator: char, name: &str) -> Option<&'l str> {
    line.split(separator).find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the text in a reply, empty if it has none.
///
/// # Safety
///
/// `reply` is a reply, or an element of one, which lives for `'r`.
unsafe fn text_of<'r>(reply: *mut RedisModuleCallReply) -> Cow<'r, str> {
    let mut len = 0;
    // SAFETY: by contract; the text, which is null if the reply is no string, lives as long as the reply.
    let bytes = unsafe {
        let text = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
        if text.is_null() {
            return Cow::Borrowed("");
        }
        slice::from_raw_parts(text.cast::<u8>(), len)
    };
    String::from_utf8_lossy(bytes)
}
