//! Reads a key as a lock.

use std::borrow::Cow;

use super::state::Key;
use crate::core::{Error, Holder, Kind, LeaseEnd, Lock, UnixMs, parse_integer};
use crate::server::{StringRef, ValueType};

/// Reads the state of the lock. It borrows from the value, so it ends before the next write.
///
/// # Errors
///
/// [`Error::WrongType`] if the value is not a lock.
pub fn read<'k>(key: &'k Key<'_, '_>) -> Result<Lock<'k, impl LeaseEnd>, Error> {
    read_for(key, None)
}

/// Like [`read`], but faster if the holder is `caller`.
///
/// # Errors
///
/// As for [`read`].
#[inline(always)]
pub fn read_for<'k>(key: &'k Key<'_, '_>, caller: Option<StringRef<'k>>) -> Result<Lock<'k, impl LeaseEnd>, Error> {
    let (kind, owner, holds) = match key.value_type() {
        ValueType::Other if planted!(DataIsFree) => return Ok(Lock::Free),
        ValueType::Empty => return Ok(Lock::Free),
        ValueType::String => (Kind::Mutex, Cow::Borrowed(key.string()), 1),
        ValueType::Hash => {
            let (owner, holds) = reentrant(key, caller).ok_or(Error::WrongType)?;
            (Kind::Reentrant, owner, holds)
        }
        ValueType::Other => return Err(Error::WrongType),
    };
    Ok(Lock::Held(Holder { kind, owner, holds, lease_end: Expiry(key) }))
}

/// Returns the owner and the number of holds, if the Hash has one field whose value is a number of holds.
fn reentrant<'k>(key: &'k Key<'_, '_>, likely: Option<StringRef<'k>>) -> Option<(Cow<'k, [u8]>, i64)> {
    let read = |field: Option<&[u8]>, value: &[u8]| {
        let holds = parse_integer(value).filter(|&holds| holds >= 1 || planted!(AnyHashIsLock))?;
        let owner = match field {
            Some(field) => Cow::Owned(field.to_vec()),
            None => Cow::Borrowed(likely?.bytes()),
        };
        Some((owner, holds))
    };
    key.only_field(likely, read).flatten()
}

/// Reads the integer in a String, or `None` from an empty key.
///
/// # Errors
///
/// [`Error::WrongType`] if the key is not a String, and [`Error::NotAnInteger`] if the String is not an integer.
pub fn read_integer(key: &Key<'_, '_>) -> Result<Option<i64>, Error> {
    match key.value_type() {
        ValueType::Empty => Ok(None),
        ValueType::String if planted!(TextIsCounter) => Ok(parse_integer(key.string())),
        ValueType::String => parse_integer(key.string()).map(Some).ok_or(Error::NotAnInteger),
        ValueType::Hash | ValueType::Other => Err(Error::WrongType),
    }
}

/// The expiry time of a key that holds a lock, looked up when it is needed.
struct Expiry<'k, 's, 'c>(&'k Key<'s, 'c>);

impl LeaseEnd for Expiry<'_, '_, '_> {
    fn get(&self) -> Option<UnixMs> {
        self.0.expiry_of_value()
    }
}
