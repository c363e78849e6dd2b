//! Panics on purpose, for tests. Only builds with the feature `failpoints` have them.
//!
//! `FAILPOINT entry n` makes the next run of an entry panic: for 0 where it begins, otherwise after the n-th closure to which the
//! module's state was lent, or the n-th step of loading. The names of the entries are those in the log. `FAILPOINT` alone replies
//! 1 until the panic, then 0. The environment variable `FAILPOINT` does the same before the module is loaded.
//!
//! A panic between two of these places would leave the same state as a panic at the first one: the module changes its state only
//! while it is lent, and calls of the server do not panic.

use std::cell::RefMut;
use std::env;
use std::ffi::c_int;

use redis_module::raw;

use super::api::OK;
use super::state::{Failpoints, state};
use super::string::Arguments;

/// Frees the memory. Called when the module is unloaded.
pub(super) fn clear() {
    *failpoints() = Failpoints::NONE;
}

/// Runs the body of an entry. The first failpoint of the entry is before the body.
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

/// Records the end of an entry, also after a panic.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let mut failpoints = failpoints();
        failpoints.running.pop();
        // A module that is refused is not unloaded, and then nothing else frees the memory.
        if failpoints.running.is_empty() {
            failpoints.running = Vec::new();
        }
    }
}

/// Passes the next failpoint of the entry that runs.
///
/// # Panics
///
/// If this failpoint is armed.
#[expect(clippy::panic, reason = "a failpoint is a panic")]
pub(super) fn pass() {
    let mut failpoints = failpoints();
    // Unit tests use the state of a module outside of an entry.
    let Some((entry, place)) = failpoints.running.last_mut() else { return };
    let here = (entry.to_owned(), *place);
    *place = place.saturating_add(1); // A test has a few hundred places.
    if failpoints.armed.as_ref() == Some(&here) {
        failpoints.armed = None;
        drop(failpoints);
        panic!("failpoint {} of {}", here.1, here.0);
    }
}

fn failpoints() -> RefMut<'static, Failpoints> {
    state().failpoints.borrow_mut()
}

/// Parses the name of an entry and the number of a place, separated by a space.
fn parse(text: &str) -> Option<(String, usize)> {
    let (entry, place) = text.rsplit_once(' ')?;
    Some((entry.to_owned(), place.parse().ok()?))
}

/// Registers the command. Returns `false` if the server refuses it.
pub(super) fn register(ctx: *mut raw::RedisModuleCtx) -> bool {
    let (name, flags) = (c"failpoint".as_ptr(), c"".as_ptr());
    // SAFETY: called while loading; the server copies name and flags, and the function has the signature that it asks for.
    unsafe { api!(RedisModule_CreateCommand(ctx, name, Some(on_failpoint), flags, 0, 0, 0)) == OK }
}

unsafe extern "C" fn on_failpoint(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own arguments, valid while this command runs.
    let words = unsafe { Arguments::new(argv, argc) }.arguments_from(1);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let mut failpoints = failpoints();
    if !words.is_empty() {
        failpoints.armed = parse(&words.join(" "));
    }
    // SAFETY: the server's own context.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx, failpoints.armed.is_some().into())) }
}
