//! The effects of a decision on a key: the write, then replication, then keyspace events.

use super::share_key::{self, ShareEnd};
use super::state::Key;
use crate::core::{Kind, UnixMs, format_integer};
use crate::server::{Event, OwnedString, StringRef, ValueType};

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
                planted!(DelComesLast => {
                    key.delete();
                    set_holds(key, owner, 1, lease_end);
                    return key.replicate_del();
                });
                key.delete();
                planted!(DelIsMissing => return set_holds(key, owner, 1, lease_end));
                key.replicate_del();
            }
            set_holds(key, owner, 1, lease_end);
        }
        Kind::Shared => {
            if ![ValueType::Empty, ValueType::SortedSet].contains(&key.value_type()) {
                key.delete();
                key.replicate_del();
            }
            set_share(key, owner, lease_end);
        }
    }
}

/// Gives a token its share with this end of its lease, or sets the end of the lease. The key is empty or holds shares.
pub fn set_share(key: &mut Key<'_, '_>, token: StringRef<'_>, lease_end: Option<UnixMs>) {
    let end = ShareEnd::at(lease_end);
    key.set_score(token, end.score());
    match end.time() {
        Some(time) => format_integer(time, |digits| key.replicate_zadd(digits, token)),
        None => key.replicate_zadd(b"inf", token),
    }
    let expires = follow_last_share(key);
    signal_all(key, Event::ZADD, expires);
}

/// Removes a share, and the key if nobody holds one any more.
pub fn remove_share(key: &mut Key<'_, '_>, token: StringRef<'_>, now: UnixMs) {
    key.remove_member(token);
    if !planted!(ShareGoesInSilence) {
        key.replicate_zrem(token);
    }
    if share_key::latest(key).is_some_and(|latest| !latest.has_passed(now)) {
        let expires = follow_last_share(key);
        return signal_all(key, Event::ZREM, expires);
    }
    if !key.is_empty() {
        // It would expire at once, under the open handle.
        key.delete();
        key.replicate_del();
    }
    key.signal(&[Event::ZREM, Event::DEL]);
}

/// Sets the end of a share's lease, if one is given, and in any case lets the key live as long as its last share.
pub fn renew_share(key: &mut Key<'_, '_>, token: StringRef<'_>, lease_end: Option<UnixMs>) {
    if lease_end.is_some() { set_share(key, token, lease_end) } else { end_with_last_share(key) }
}

/// Lets a key live as long as its last share, after others have removed a later one or set its expiry time.
pub fn end_with_last_share(key: &mut Key<'_, '_>) {
    if let Some(event) = follow_last_share(key) {
        key.signal(&[event]);
    }
}

/// Lets the key live as long as its last share. Returns the event of the change, if there was one.
fn follow_last_share(key: &mut Key<'_, '_>) -> Option<Event> {
    planted!(KeyOutlivesShares => if key.expiry().is_some() { return None });
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
            key.replicate_persist();
            Some(Event::PERSIST)
        }
    }
}

/// Sets the owner's number of holds and, if given, the end of the lease. The key is empty or holds this lock.
pub fn set_holds(key: &mut Key<'_, '_>, owner: StringRef<'_>, holds: i64, lease_end: Option<UnixMs>) {
    let holds = format_integer(holds, OwnedString::new);
    key.set_field(owner, holds.as_ref());
    key.replicate_hset(owner, holds.as_ref());
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
    let expiry = key.expiry().filter(|_| !planted!(CounterLosesExpiry));
    planted!(FenceIsKept => {
        key.set_string(value, expiry);
        return key.signal(&[Event::SET]);
    });
    set_string(key, value, expiry);
    key.signal(&[Event::SET]);
}

/// Deletes the key of a lock.
#[inline(always)]
pub fn free(key: &mut Key<'_, '_>) {
    key.delete();
    planted!(ReleaseIsKept => return key.signal(&[Event::DEL]));
    key.replicate_del();
    planted!(NobodyIsSignalled => return);
    key.signal(&[Event::DEL]);
}

#[inline(always)]
fn set_string(key: &mut Key<'_, '_>, value: StringRef<'_>, expiry: Option<UnixMs>) {
    key.set_string(value, expiry);
    match expiry {
        Some(at) if planted!(RelativeExpiry) => {
            format_integer(at.saturating_sub(crate::server::now_ms()), |digits| key.replicate_set(value, Some(digits)))
        }
        Some(at) => format_integer(at, |digits| key.replicate_set(value, Some(digits))),
        None => key.replicate_set(value, None),
    }
}

fn set_expiry(key: &mut Key<'_, '_>, at: UnixMs) {
    key.set_expiry(at);
    planted!(ExpiryIsKept => return);
    format_integer(at, |digits| key.replicate_pexpireat(digits));
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
