//! The server's own settings.

use std::ffi::CStr;
use std::slice;

use redis_module::raw;

use super::timer;

/// Returns the value of a setting of the server that is a number. Returns `None` if there is none, or CONFIG has another
/// name.
pub fn server_setting(name: &'static CStr) -> Option<i64> {
    let ctx = timer::own_context()?;
    let (config, get) = (c"CONFIG".as_ptr(), c"GET".as_ptr());
    // SAFETY: the module's own context; "c" takes C strings. A reply that is not null is the module's to read and to free,
    // once; an element that is not there is null, and so is the text of what is no string.
    unsafe {
        let reply = api!(RedisModule_Call(ctx, config, c"cc".as_ptr(), get, name.as_ptr()));
        if reply.is_null() {
            return None;
        }
        let value = api!(RedisModule_CallReplyArrayElement(reply, 1));
        let number = if value.is_null() { None } else { number_in(value) };
        api!(RedisModule_FreeCallReply(reply));
        number
    }
}

/// Returns the number in a string.
///
/// # Safety
///
/// `reply` is a reply that the module got, and has not freed.
unsafe fn number_in(reply: *mut raw::RedisModuleCallReply) -> Option<i64> {
    let mut len = 0;
    // SAFETY: by contract; the text, which is null if the reply is no string, lives as long as the reply.
    let digits = unsafe {
        let text = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
        if text.is_null() {
            return None;
        }
        slice::from_raw_parts(text.cast::<u8>(), len)
    };
    std::str::from_utf8(digits).ok()?.parse().ok()
}
