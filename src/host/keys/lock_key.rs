//! Reads a key as a lock.

use std::borrow::Cow;

use super::share_key;
use crate::core::{Error, Holder, Kind, LeaseEnd, Lock, Shares, UnixMs, parse_integer};
use crate::host::state::Key;
use crate::server::{StringRef, ValueType};

/// Returns the state of the lock, with the share of `caller` if it has one, or [`Error::WrongType`] if the value is not a lock.
/// It borrows from the value, so it cannot be used after the next write. The read is faster if `caller` is the holder.
#[inline(always)]
pub fn read<'k>(
    key: &'k Key<'_, '_>,
    caller: Option<StringRef<'k>>,
    now: UnixMs,
) -> Result<Lock<'k, impl LeaseEnd>, Error> {
    let (kind, owner, holds) = match key.value_type() {
        ValueType::Empty => return Ok(Lock::Free),
        ValueType::String => (Kind::Mutex, Cow::Borrowed(key.string()), 1),
        ValueType::Hash => {
            let (owner, holds) = reentrant(key, caller).ok_or(Error::WrongType)?;
            (Kind::Reentrant, owner, holds)
        }
        ValueType::SortedSet => return shared(key, caller, now).ok_or(Error::WrongType),
        ValueType::Other => return Err(Error::WrongType),
    };
    Ok(Lock::Held(Holder { kind, owner, holds, lease_end: End::OfKey(key) }))
}

/// Returns the shares, or `None` if the Sorted Set is not a lock.
#[cold]
fn shared<'k, 's, 'c>(
    key: &'k Key<'s, 'c>,
    caller: Option<StringRef<'k>>,
    now: UnixMs,
) -> Option<Lock<'k, End<'k, 's, 'c>>> {
    // This comes first: if the caller holds the only share, its score is the lowest and the highest, too.
    let own_end = caller.and_then(|caller| share_key::end_of(key, caller));
    let view = share_key::view(key, now)?;
    let own = caller.and_then(|caller| {
        let end = own_end.filter(|end| !end.has_expired(view.now))?;
        let lease_end = End::Known([end.time(), view.expiry].into_iter().flatten().min());
        Some(Holder { kind: Kind::Shared, owner: Cow::Borrowed(caller.bytes()), holds: 1, lease_end })
    });
    debug_assert!(own.is_none() || view.held >= 1, "the share of the caller is not counted");
    debug_assert!(own_end.is_none_or(|end| view.earliest <= end && end <= view.latest), "the range of ends is wrong");
    Some(Lock::Shared(Shares { own, held: view.held, lease_end: End::Known(view.ends_at()) }))
}

/// Returns the owner and the number of holds, or `None` if the Hash has several fields or its value is not a number of holds.
fn reentrant<'k>(key: &'k Key<'_, '_>, likely: Option<StringRef<'k>>) -> Option<(Cow<'k, [u8]>, i64)> {
    let read = |field: Option<&[u8]>, value: &[u8]| {
        let holds = parse_integer(value).filter(|&holds| holds >= 1)?;
        let owner = match field {
            Some(field) => Cow::Owned(field.to_vec()),
            None => Cow::Borrowed(likely?.bytes()),
        };
        Some((owner, holds))
    };
    key.only_field(likely, read).flatten()
}

/// Returns the integer in a String, or `None` if the key is empty. The error is [`Error::WrongType`] if the key is not a String,
/// and [`Error::NotAnInteger`] if the String is not an integer.
pub fn read_integer(key: &Key<'_, '_>) -> Result<Option<i64>, Error> {
    match key.value_type() {
        ValueType::Empty => Ok(None),
        ValueType::String => parse_integer(key.string()).map(Some).ok_or(Error::NotAnInteger),
        ValueType::Hash | ValueType::SortedSet | ValueType::Other => Err(Error::WrongType),
    }
}

/// When a lease ends.
enum End<'k, 's, 'c> {
    /// The lease ends with the key. Its expiry time is read on demand.
    OfKey(&'k Key<'s, 'c>),
    /// The lease of a share ends at this time, or never.
    Known(Option<UnixMs>),
}

impl LeaseEnd for End<'_, '_, '_> {
    fn get(&self) -> Option<UnixMs> {
        match self {
            Self::OfKey(key) => key.expiry_of_value(),
            Self::Known(end) => *end,
        }
    }
}
