//! What a decision does to a key: the write, then what replicas and AOF are told, then what subscribers are told.
//!
//! Only plain commands with absolute times leave the module, so a server without it can replay them. The native writes
//! fire no keyspace events and do not wake WATCH, so both are done here, once a real change has been made.

use std::ffi::{CStr, c_int};
use std::ptr;

use redis_module::raw;

use super::audience;
use super::key::Key;
use super::state;
use super::text::{OwnedText, Text, Word};
use crate::core::{Kind, UnixMs, format_integer};

/// An event as keyspace notifications name it, with its class.
type Event = (c_int, &'static CStr);

const SET: Event = (raw::REDISMODULE_NOTIFY_STRING, c"set");
const HSET: Event = (raw::REDISMODULE_NOTIFY_HASH, c"hset");
const EXPIRE: Event = (raw::REDISMODULE_NOTIFY_GENERIC, c"expire");
const DEL: Event = (raw::REDISMODULE_NOTIFY_GENERIC, c"del");

/// Makes `owner` the holder, with one hold, whoever held the lock before.
#[inline(always)]
pub fn grant(key: &mut Key<'_>, kind: Kind, owner: Text<'_>, lease_end: Option<UnixMs>) {
    match kind {
        Kind::Mutex => {
            key.set_string(owner, lease_end);
            replicate_set(key, owner, lease_end);
            notify(key, SET, lease_end);
        }
        Kind::Reentrant => {
            if !key.is_empty() {
                key.delete();
                replicate_del(key);
            }
            set_holds(key, owner, 1, lease_end);
        }
    }
}

/// Gives `owner` that many holds, and the lease a new end where there is one. The key is empty or holds this lock.
pub fn set_holds(key: &mut Key<'_>, owner: Text<'_>, holds: i64, lease_end: Option<UnixMs>) {
    let holds = format_integer(holds, |digits| OwnedText::new(key.ctx, digits));
    key.set_field(owner, holds.text());
    replicate_hset(key, owner, holds.text());
    if let Some(end) = lease_end {
        key.set_expiry(end);
        replicate_pexpireat(key, end);
    }
    notify(key, HSET, lease_end);
}

/// Gives the lease a new end.
pub fn set_lease(key: &mut Key<'_>, lease_end: UnixMs) {
    key.set_expiry(lease_end);
    replicate_pexpireat(key, lease_end);
    notify(key, EXPIRE, None);
}

/// Sets a counter, which is a String, and leaves its expiry as it is.
pub fn set_counter(key: &mut Key<'_>, value: Text<'_>) {
    let expiry = key.expiry();
    key.set_string(value, expiry);
    replicate_set(key, value, expiry);
    notify(key, SET, None);
}

/// Frees the lock.
#[inline(always)]
pub fn free(key: &mut Key<'_>) {
    key.delete();
    replicate_del(key);
    notify(key, DEL, None);
}

/// Tells WATCH and client-side caches that the key has changed, and subscribers how; a new lease is an event of its own.
#[inline(always)]
fn notify(key: &Key<'_>, event: Event, new_lease: Option<UnixMs>) {
    // SAFETY: context and name are valid while the key is open.
    unsafe { api!(RedisModule_SignalModifiedKey(key.ctx.raw(), key.name.raw())) };
    let heard = audience::classes();
    if heard != 0 {
        publish(key, event, heard);
        if new_lease.is_some() {
            publish(key, EXPIRE, heard);
        }
    }
}

fn publish(key: &Key<'_>, (class, event): Event, heard: c_int) {
    if class & heard == 0 {
        return;
    }
    // The event also reaches our own handler, which would take it for somebody else's doing.
    state::with(|state| state.own_event = key.name.raw());
    // SAFETY: as in `notify`; the name of the event is a static C string.
    unsafe { api!(RedisModule_NotifyKeyspaceEvent(key.ctx.raw(), class, event.as_ptr(), key.name.raw())) };
    state::with(|state| state.own_event = ptr::null());
}

// In a format, "s" stands for a string of the server, "c" for a C string, "b" for bytes and their number. The server
// makes a string of everything but "s", and two of an integer: digits as bytes and a word kept as a string cost it least.

#[inline(always)]
fn replicate_set(key: &Key<'_>, value: Text<'_>, expiry: Option<UnixMs>) {
    let (ctx, name, value, set) = (key.ctx.raw(), key.name.raw(), value.raw(), c"SET".as_ptr());
    match expiry {
        Some(at) => format_integer(at, |digits| {
            let (pxat, start, len) = (pxat(), digits.as_ptr(), digits.len());
            // SAFETY: context and strings are valid while the key is open, and the arguments match the format.
            unsafe { api!(RedisModule_Replicate(ctx, set, c"sssb".as_ptr(), name, value, pxat, start, len)) };
        }),
        // SAFETY: likewise.
        None => unsafe { _ = api!(RedisModule_Replicate(ctx, set, c"ss".as_ptr(), name, value)) },
    }
}

/// The word of SET, made when it is first needed.
fn pxat() -> *mut raw::RedisModuleString {
    if let Some(word) = state::with(|state| state.pxat.as_ref().map(Word::raw)) {
        return word;
    }
    let word = Word::new("PXAT");
    let raw = word.raw();
    state::with(|state| state.pxat = Some(word));
    raw
}

fn replicate_hset(key: &Key<'_>, owner: Text<'_>, holds: Text<'_>) {
    let (ctx, name, owner, holds) = (key.ctx.raw(), key.name.raw(), owner.raw(), holds.raw());
    // SAFETY: as in `replicate_set`.
    unsafe { api!(RedisModule_Replicate(ctx, c"HSET".as_ptr(), c"sss".as_ptr(), name, owner, holds)) };
}

fn replicate_pexpireat(key: &Key<'_>, lease_end: UnixMs) {
    let (ctx, name) = (key.ctx.raw(), key.name.raw());
    format_integer(lease_end, |digits| {
        let (start, len) = (digits.as_ptr(), digits.len());
        // SAFETY: as in `replicate_set`.
        unsafe { api!(RedisModule_Replicate(ctx, c"PEXPIREAT".as_ptr(), c"sb".as_ptr(), name, start, len)) };
    });
}

fn replicate_del(key: &Key<'_>) {
    let (ctx, name) = (key.ctx.raw(), key.name.raw());
    // SAFETY: as in `replicate_set`.
    unsafe { api!(RedisModule_Replicate(ctx, c"DEL".as_ptr(), c"s".as_ptr(), name)) };
}
