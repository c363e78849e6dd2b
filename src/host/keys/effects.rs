//! The effects of a decision on a key, in this order: the write, the replication, the keyspace events.
//!
//! Debug builds check the written value before the events, because a handler of another module may change the key. A key in use
//! cannot be written, and looks empty.

use super::share_key::{self, ShareEnd};
use crate::core::{Kind, UnixMs, format_integer, increment};
use crate::host::state::Key;
use crate::server::{self, Event, OwnedString, StringRef, ValueType};

/// Makes `owner` the only holder, with one hold, and replaces any other holder. For a share, adds `owner` to the holders.
#[inline(always)]
pub fn grant(key: &mut Key<'_, '_>, kind: Kind, owner: StringRef<'_>, lease_end: Option<UnixMs>) {
    match kind {
        Kind::Mutex => {
            set_string(key, owner, lease_end);
            signal(key, Event::SET, lease_end.map(|_| Event::EXPIRE));
        }
        Kind::Reentrant => {
            if !key.is_empty() {
                delete(key);
            }
            set_holds(key, owner, 1, lease_end);
        }
        Kind::Shared => {
            if ![ValueType::Empty, ValueType::SortedSet].contains(&key.value_type()) {
                delete(key);
            }
            set_share(key, owner, lease_end);
        }
    }
}

/// Grants a lock again to `owner`, which held it with this number of holds.
pub fn grant_again(key: &mut Key<'_, '_>, kind: Kind, owner: StringRef<'_>, holds: i64, lease_end: Option<UnixMs>) {
    match kind {
        Kind::Reentrant => set_holds(key, owner, holds, lease_end),
        Kind::Mutex | Kind::Shared => grant(key, kind, owner, lease_end),
    }
}

/// Adds the share of a token, or changes the end of its lease. The key is empty or a shared lock.
pub fn set_share(key: &mut Key<'_, '_>, token: StringRef<'_>, lease_end: Option<UnixMs>) {
    let end = ShareEnd::at(lease_end);
    key.set_score(token, end.score());
    debug_assert!(key.is_in_use() || share_key::end_of(key, token) == Some(end), "the share was not written");
    let replicated = match end.time() {
        Some(time) => format_integer(time, |digits| key.replicate_zadd(digits, token)),
        None => key.replicate_zadd(b"inf", token),
    };
    check(replicated, key);
    let expires = fit_expiry(key);
    signal(key, Event::ZADD, expires);
}

/// Removes a share. Deletes the key if no share is left that has not expired.
pub fn remove_share(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) {
    key.remove_member(token);
    debug_assert!(share_key::end_of(key, token).is_none(), "the share was not removed");
    check(key.replicate_zrem(token), key);
    if share_key::latest(key).is_some_and(|latest| !latest.has_expired(now)) {
        let expires = fit_expiry(key);
        return signal(key, Event::ZREM, expires);
    }
    if !key.is_empty() {
        delete(key); // All other shares have expired. The server would expire the key while it is open.
    }
    key.signal(&[Event::ZREM, Event::DEL]);
}

/// Sets the expiry time of a key to the end of its last share, after external writes to its shares or its expiry time.
pub fn fit_expiry_to_last_share(key: &mut Key<'_, '_>) {
    if let Some(event) = fit_expiry(key) {
        key.signal(&[event]);
    }
}

/// Sets the expiry time of the key to the end of its last share. Returns the event of the change, if there is one.
fn fit_expiry(key: &mut Key<'_, '_>) -> Option<Event> {
    let wanted = share_key::latest(key)?.time();
    if wanted == key.expiry() {
        return None;
    }
    let event = match wanted {
        Some(at) => {
            set_expiry(key, at);
            Event::EXPIRE
        }
        None => {
            key.remove_expiry();
            check(key.replicate_persist(), key);
            Event::PERSIST
        }
    };
    debug_assert!(key.is_in_use() || key.expiry() == wanted, "the key does not end with its last share");
    Some(event)
}

/// Sets the number of holds of an owner and, if given, the end of the lease. The key is empty or a re-entrant lock of this owner.
pub fn set_holds(key: &mut Key<'_, '_>, owner: StringRef<'_>, holds: i64, lease_end: Option<UnixMs>) {
    debug_assert!(holds >= 1, "a lock without holds is free");
    let holds = format_integer(holds, OwnedString::new);
    key.set_field(owner, holds.as_ref());
    debug_assert!(key.is_in_use() || key.value_type() == ValueType::Hash, "the holds were not written");
    check(key.replicate_hset(owner, holds.as_ref()), key);
    if let Some(end) = lease_end {
        set_expiry(key, end);
    }
    signal(key, Event::HSET, lease_end.map(|_| Event::EXPIRE));
}

/// Sets the end of the lease of a lock that is held alone.
pub fn set_lease(key: &mut Key<'_, '_>, lease_end: UnixMs) {
    set_expiry(key, lease_end);
    key.signal(&[Event::EXPIRE]);
}

/// Sets the end of the lease of a lock that is held alone, or of the share of `holder`.
pub fn set_lease_of(key: &mut Key<'_, '_>, holder: StringRef<'_>, lease_end: UnixMs) {
    match key.value_type() {
        ValueType::SortedSet => set_share(key, holder, Some(lease_end)),
        _ => set_lease(key, lease_end),
    }
}

/// Sets the value of a counter, which is a String or does not exist, and keeps its expiry time.
pub fn set_counter(key: &mut Key<'_, '_>, value: StringRef<'_>) {
    let expiry = key.expiry();
    set_string(key, value, expiry);
    key.signal(&[Event::SET]);
}

/// Deletes the key of a lock.
#[inline(always)]
pub fn free(key: &mut Key<'_, '_>) {
    delete(key);
    key.signal(&[Event::DEL]);
}

#[inline(always)]
fn delete(key: &mut Key<'_, '_>) {
    key.delete();
    check(key.replicate_del(), key);
}

#[inline(always)]
fn set_string(key: &mut Key<'_, '_>, value: StringRef<'_>, expiry: Option<UnixMs>) {
    key.set_string(value, expiry);
    debug_assert!(key.is_in_use() || key.string() == value.bytes(), "the String was not written");
    debug_assert!(key.is_in_use() || key.expiry() == expiry, "the expiry time was not written with the String");
    let replicated = match expiry {
        Some(at) => format_integer(at, |digits| key.replicate_set(value, Some(digits))),
        None => key.replicate_set(value, None),
    };
    check(replicated, key);
}

fn set_expiry(key: &mut Key<'_, '_>, at: UnixMs) {
    key.set_expiry(at);
    debug_assert!(key.is_in_use() || key.expiry() == Some(at), "the expiry time was not written");
    check(format_integer(at, |digits| key.replicate_pexpireat(digits)), key);
}

/// Records a write that the server did not replicate.
#[inline(always)]
fn check(replicated: bool, key: &Key<'_, '_>) {
    if !replicated {
        not_replicated(key);
    }
}

/// Records a write that replicas and the AOF do not get. The write is not undone: a message may have notified a client of it.
#[cold]
fn not_replicated(key: &Key<'_, '_>) {
    key.with_state(|state| increment(&mut state.stats.not_replicated));
    if let Some(line) = key.with_state(|state| state.refusals.record_replication(server::monotonic_ms())) {
        key.ctx().warn(line);
    }
}

/// Signals the key, the event, and the second event if there is one.
#[inline(always)]
fn signal(key: &mut Key<'_, '_>, event: Event, other: Option<Event>) {
    match other {
        Some(other) => key.signal(&[event, other]),
        None => key.signal(&[event]),
    }
}
