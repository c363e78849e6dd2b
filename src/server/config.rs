//! The server's own settings.

use std::ffi::CStr;

use super::answer::Answer;
use super::timer;

/// Returns the value of a setting of the server that is a number. Returns `None` if there is none, or CONFIG has another
/// name.
pub fn server_setting(name: &'static CStr) -> Option<i64> {
    let ctx = timer::own_context()?;
    // SAFETY: the module's own context.
    let answer = unsafe { Answer::to(ctx, c"CONFIG", c"GET", Some(name)) }?;
    answer.texts().nth(1)?.parse().ok()
}
