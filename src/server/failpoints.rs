//! Panics on purpose, for tests. No build has them without the feature `failpoints`.
//!
//! `FAILPOINT entry n` has the next run of an entry panic: for 0 where it begins, else as soon as it has used something that
//! the module remembers for the n-th time, while that is lent. The names of the entries are those in the log. `FAILPOINT`
//! alone replies 1 as long as it has not come to that. The variable `FAILPOINT` of the environment does the same before the
//! module is loaded.
//!
//! There is nothing between two of these places that only a part of would be done: what the module remembers is changed while
//! it is lent, and calls of the server do not panic.

use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, slice};

use redis_module::raw;

static FAILPOINTS: Mutex<Failpoints> = Mutex::new(Failpoints::NONE);

struct Failpoints {
    /// The entry that is to panic, and where in it.
    armed: Option<(String, usize)>,
    /// The entries that run, each inside the one before it, and how far each of them is.
    running: Vec<(&'static str, usize)>,
    has_begun: bool,
}

impl Failpoints {
    const NONE: Self = Self { armed: None, running: Vec::new(), has_begun: false };
}

/// Gives the memory back, when the module is unloaded.
pub(super) fn clear() {
    *failpoints() = Failpoints::NONE;
}

/// Runs the body of an entry, whose first failpoint is here.
pub(super) fn run<R>(entry: &'static str, body: impl FnOnce() -> R) -> R {
    let mut failpoints = failpoints();
    if !failpoints.has_begun {
        failpoints.has_begun = true;
        failpoints.armed = env::var("FAILPOINT").ok().and_then(|text| parse(&text));
    }
    failpoints.running.push((entry, 0));
    drop(failpoints);
    let _running = Running;
    pass();
    body()
}

/// Ends an entry, also when it panics.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        failpoints().running.pop();
    }
}

/// Panics if this is the failpoint to do so.
///
/// # Panics
///
/// See above.
#[allow(clippy::panic, reason = "this is what it is for")]
pub(super) fn pass() {
    let mut failpoints = failpoints();
    let Some((entry, place)) = failpoints.running.last_mut() else { return };
    let here = (entry.to_owned(), *place);
    *place = place.saturating_add(1);
    if failpoints.armed.as_ref() == Some(&here) {
        failpoints.armed = None;
        drop(failpoints);
        panic!("failpoint {} of {}", here.1, here.0);
    }
}

fn failpoints() -> MutexGuard<'static, Failpoints> {
    FAILPOINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses an entry and a number behind it.
fn parse(text: &str) -> Option<(String, usize)> {
    let (entry, place) = text.rsplit_once(' ')?;
    Some((entry.to_owned(), place.parse().ok()?))
}

/// Registers the command. Returns `false` if the server refuses it.
pub(super) fn register(ctx: *mut raw::RedisModuleCtx) -> bool {
    let (name, flags) = (c"failpoint".as_ptr(), c"".as_ptr());
    // SAFETY: called while loading; the server copies name and flags, and the function has the signature that it asks for.
    let created = unsafe { api!(RedisModule_CreateCommand(ctx, name, Some(on_failpoint), flags, 0, 0, 0)) };
    created == raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_failpoint(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own arguments, valid while this command runs, of which the first is the name of the command.
    let words = unsafe { slice::from_raw_parts(argv, argc as usize) };
    let words: Vec<String> = words.iter().skip(1).map(|&word| text_of(word)).collect();
    let mut failpoints = failpoints();
    if !words.is_empty() {
        failpoints.armed = parse(&words.join(" "));
    }
    // SAFETY: the server's own context.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx, failpoints.armed.is_some().into())) }
}

fn text_of(word: *mut raw::RedisModuleString) -> String {
    let mut len = 0;
    // SAFETY: a string of the server, valid while its command runs; the bytes are copied.
    let bytes = unsafe {
        let start: *const c_char = api!(RedisModule_StringPtrLen(word, &raw mut len));
        slice::from_raw_parts(start.cast::<u8>(), len)
    };
    String::from_utf8_lossy(bytes).into_owned()
}
