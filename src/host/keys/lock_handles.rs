//! Handles to the queue, the sessions and the revocation of one lock.

use crate::core::{Handles, HoldKey, Kind};
use crate::host::state::{Key, with_record};
use crate::server::ValueType;

/// Returns the hold key of a token's share of a lock.
pub fn share_hold_key<'n>(key: &Key<'n, '_>, token: &'n [u8]) -> HoldKey<'n> {
    HoldKey::of(key.ctx().db(), key.name().bytes(), Kind::Shared, token)
}

/// Returns the hold key of a holder, by the type of the key: the whole lock, or a share.
pub fn hold_key_of<'n>(key: &Key<'n, '_>, holder: &'n [u8]) -> HoldKey<'n> {
    if key.value_type() == ValueType::SortedSet {
        share_hold_key(key, holder)
    } else {
        HoldKey::whole(key.ctx().db(), key.name().bytes())
    }
}

/// Returns the handles of a lock, or `None` if there are none. The key is open already: to open it may call the module back,
/// which can change the result.
#[inline]
pub fn handles_of(key: &Key<'_, '_>) -> Option<Handles> {
    // The common case needs neither the database nor a lookup.
    if key.with_state(|state| state.is_idle()) {
        return None;
    }
    with_record(key, |state, record| state.locks.handles_of(record))
}
