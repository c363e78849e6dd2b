//! The effects of a decision on a key: the write, then replication, then keyspace events.

use super::share_key::{self, ShareEnd};
use crate::core::{Kind, UnixMs, format_integer, increment};
use crate::host::state::{self, Key, State};
use crate::server::{self, Event, OwnedString, StringRef, ValueType};

/// Makes `owner` the holder, with one hold, whoever held the lock before; or one more holder of a share.
#[inline(always)]
pub fn grant(key: &mut Key<'_, '_>, kind: Kind, owner: StringRef<'_>, lease_end: Option<UnixMs>) {
    match kind {
        Kind::Mutex => {
            set_string(key, owner, lease_end);
            signal(key, Event::SET, lease_end.is_some());
        }
        Kind::Reentrant => {
            if !key.is_empty() {
                key.delete();
                replicate_del(key);
            }
            set_holds(key, owner, 1, lease_end);
        }
        Kind::Shared => {
            if ![ValueType::Empty, ValueType::SortedSet].contains(&key.value_type()) {
                key.delete();
                replicate_del(key);
            }
            set_share(key, owner, lease_end);
        }
    }
}

/// Gives a token its share with this end of its lease, or sets the end of the lease. The key is empty or holds shares.
pub fn set_share(key: &mut Key<'_, '_>, token: StringRef<'_>, lease_end: Option<UnixMs>) {
    let end = ShareEnd::at(lease_end);
    key.set_score(token, end.score());
    let replicated = match end.time() {
        Some(time) => format_integer(time, |digits| key.replicate_zadd(digits, token)),
        None => key.replicate_zadd(b"inf", token),
    };
    check(key, replicated);
    let expires = fit_expiry(key);
    signal_all(key, Event::ZADD, expires);
}

/// Removes a share, and the key if nobody holds one any more.
pub fn remove_share(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) {
    key.remove_member(token);
    let replicated = key.replicate_zrem(token);
    check(key, replicated);
    if share_key::latest(key).is_some_and(|latest| !latest.has_expired(now)) {
        let expires = fit_expiry(key);
        return signal_all(key, Event::ZREM, expires);
    }
    if !key.is_empty() {
        // It would expire at once, under the open handle.
        key.delete();
        replicate_del(key);
    }
    key.signal(&[Event::ZREM, Event::DEL]);
}

/// Sets the end of a share's lease, if one is given, and in any case lets the key live as long as its last share.
pub fn renew_share(key: &mut Key<'_, '_>, token: StringRef<'_>, lease_end: Option<UnixMs>) {
    if lease_end.is_some() { set_share(key, token, lease_end) } else { fit_expiry_to_last_share(key) }
}

/// Lets a key live as long as its last share, after others have removed a later one or set its expiry time.
pub fn fit_expiry_to_last_share(key: &mut Key<'_, '_>) {
    if let Some(event) = fit_expiry(key) {
        key.signal(&[event]);
    }
}

/// Lets the key live as long as its last share. Returns the event of the change, if there was one.
fn fit_expiry(key: &mut Key<'_, '_>) -> Option<Event> {
    let wanted = share_key::latest(key)?.time();
    if wanted == key.expiry() {
        return None;
    }
    match wanted {
        Some(at) => {
            set_expiry(key, at);
            Some(Event::EXPIRE)
        }
        None => {
            key.remove_expiry();
            let replicated = key.replicate_persist();
            check(key, replicated);
            Some(Event::PERSIST)
        }
    }
}

/// Sets the owner's number of holds and, if given, the end of the lease. The key is empty or holds this lock.
pub fn set_holds(key: &mut Key<'_, '_>, owner: StringRef<'_>, holds: i64, lease_end: Option<UnixMs>) {
    let holds = format_integer(holds, OwnedString::new);
    key.set_field(owner, holds.as_ref());
    let replicated = key.replicate_hset(owner, holds.as_ref());
    check(key, replicated);
    if let Some(end) = lease_end {
        set_expiry(key, end);
    }
    signal(key, Event::HSET, lease_end.is_some());
}

/// Sets the end of the lease.
pub fn set_lease(key: &mut Key<'_, '_>, lease_end: UnixMs) {
    set_expiry(key, lease_end);
    key.signal(&[Event::EXPIRE]);
}

/// Sets the value of a counter, which is a String, and keeps its expiry time.
pub fn set_counter(key: &mut Key<'_, '_>, value: StringRef<'_>) {
    let expiry = key.expiry();
    set_string(key, value, expiry);
    key.signal(&[Event::SET]);
}

/// Deletes the key of a lock.
#[inline(always)]
pub fn free(key: &mut Key<'_, '_>) {
    key.delete();
    replicate_del(key);
    key.signal(&[Event::DEL]);
}

#[inline(always)]
fn set_string(key: &mut Key<'_, '_>, value: StringRef<'_>, expiry: Option<UnixMs>) {
    key.set_string(value, expiry);
    let replicated = match expiry {
        Some(at) => format_integer(at, |digits| key.replicate_set(value, Some(digits))),
        None => key.replicate_set(value, None),
    };
    check(key, replicated);
}

fn set_expiry(key: &mut Key<'_, '_>, at: UnixMs) {
    key.set_expiry(at);
    let replicated = format_integer(at, |digits| key.replicate_pexpireat(digits));
    check(key, replicated);
}

fn replicate_del(key: &mut Key<'_, '_>) {
    let replicated = key.replicate_del();
    check(key, replicated);
}

/// Records whether the server has taken a write for its replicas and the AOF.
#[inline(always)]
fn check(key: &Key<'_, '_>, replicated: bool) {
    if !replicated {
        not_replicated(key);
    }
}

/// Records a write that replicas and the AOF do not get. It stands: a message may have notified a client of it.
#[cold]
fn not_replicated(key: &Key<'_, '_>) {
    let line = state::with(|State { stats, refusals, .. }| {
        increment(&mut stats.not_replicated);
        refusals.record_replication(server::monotonic_ms())
    });
    if let Some(line) = line {
        key.ctx().warn(line);
    }
}

fn signal_all(key: &mut Key<'_, '_>, event: Event, other: Option<Event>) {
    match other {
        Some(other) => key.signal(&[event, other]),
        None => key.signal(&[event]),
    }
}

/// Signals the key and its events. A new lease is an event of its own.
#[inline(always)]
fn signal(key: &mut Key<'_, '_>, event: Event, new_lease: bool) {
    if new_lease { key.signal(&[event, Event::EXPIRE]) } else { key.signal(&[event]) }
}
