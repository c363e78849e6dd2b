//! An index of locks and their shares by database, key and token.

use std::collections::BTreeMap;
use std::collections::btree_map::IntoValues;
use std::ops::Bound;
use std::rc::Rc;

use super::{Id, name_map::NameMap};
use crate::core::{Kind, steps};

/// The key of a hold: a lock that is held alone, or one share of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldKey<'n> {
    pub db: i32,
    pub key: &'n [u8],
    /// The token of the share, or `None` for the whole lock.
    pub share: Option<&'n [u8]>,
}

impl<'n> HoldKey<'n> {
    /// Returns the hold key of `owner` as the holder of a lock of this kind.
    pub fn of(db: i32, key: &'n [u8], kind: Kind, owner: &'n [u8]) -> Self {
        Self { db, key, share: (kind == Kind::Shared).then_some(owner) }
    }

    /// Returns the hold key of a lock that is held alone.
    pub fn whole(db: i32, key: &'n [u8]) -> Self {
        Self { db, key, share: None }
    }
}

/// A map from hold keys to handles. A lock has one handle as a whole, or those of its shares and a common value of type `S`.
///
/// Each database with entries has a map of its own, so that a look-up does not copy the key.
pub struct LockIndex<T, S = ()>(BTreeMap<i32, NameMap<LockHandles<T, S>>>);

enum LockHandles<T, S> {
    Whole(Id<T>),
    /// Boxed, because most locks are held alone.
    ShareHandles(Box<ShareHandles<T, S>>),
}

/// The handles of the shares of one lock.
struct ShareHandles<T, S> {
    /// The handles by token. Their order is deterministic, so that a simulation can be repeated.
    by_token: BTreeMap<Box<[u8]>, Id<T>>,
    common: S,
}

/// The handles of shares that were removed together.
pub type RemovedShares<T> = IntoValues<Box<[u8]>, Id<T>>;

impl<T, S: Default> LockIndex<T, S> {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn get(&self, hold_key: HoldKey<'_>) -> Option<Id<T>> {
        match (self.handles(hold_key.db, hold_key.key)?, hold_key.share) {
            (LockHandles::Whole(id), None) => Some(*id),
            (LockHandles::ShareHandles(shares), Some(token)) => shares.by_token.get(token).copied(),
            _ => None,
        }
    }

    pub fn has_shares(&self, db: i32, key: &[u8]) -> bool {
        self.shares(db, key).next().is_some()
    }

    pub fn share_count(&self, db: i32, key: &[u8]) -> usize {
        self.shares_of(db, key).map_or(0, |shares| shares.by_token.len())
    }

    pub fn shares(&self, db: i32, key: &[u8]) -> impl Iterator<Item = Id<T>> {
        let shares = self.shares_of(db, key);
        shares.into_iter().flat_map(|shares| shares.by_token.values().copied()).inspect(|_| steps::count())
    }

    /// Returns the tokens of a lock's shares that have handles, from `token` on.
    pub fn tokens_from(&self, db: i32, key: &[u8], token: &[u8]) -> impl Iterator<Item = &[u8]> {
        let shares = self.shares_of(db, key);
        let from = (Bound::Included(token), Bound::Unbounded);
        let tokens = shares.into_iter().flat_map(move |shares| shares.by_token.range::<[u8], _>(from));
        tokens.map(|(token, _)| &**token).inspect(|_| steps::count())
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn handle_count(&self) -> usize {
        let count = |handles: &LockHandles<T, S>| match handles {
            LockHandles::Whole(_) => 1,
            LockHandles::ShareHandles(shares) => shares.by_token.len(),
        };
        self.0.values().flat_map(NameMap::values).map(count).sum()
    }

    /// Sets the handle of a hold key. The handles of the lock in the other form are dropped.
    pub fn insert(&mut self, db: i32, key: Rc<[u8]>, share: Option<&[u8]>, id: Id<T>) {
        let keys = self.0.entry(db).or_insert_with(NameMap::new);
        match (keys.get_mut(&key), share) {
            (Some(LockHandles::ShareHandles(shares)), Some(token)) => _ = shares.by_token.insert(token.into(), id),
            (_, Some(token)) => {
                let by_token = BTreeMap::from([(token.into(), id)]);
                keys.insert(key, LockHandles::ShareHandles(Box::new(ShareHandles { by_token, common: S::default() })));
            }
            (_, None) => _ = keys.insert(key, LockHandles::Whole(id)),
        }
    }

    pub fn remove(&mut self, hold_key: HoldKey<'_>) {
        let is_empty = match (self.handles_mut(hold_key.db, hold_key.key), hold_key.share) {
            (Some(LockHandles::Whole(_)), None) => true,
            (Some(LockHandles::ShareHandles(shares)), Some(token)) => {
                shares.by_token.remove(token);
                shares.by_token.is_empty()
            }
            _ => false,
        };
        if is_empty {
            self.remove_lock(hold_key.db, hold_key.key);
        }
    }

    /// Returns the common value of a lock's shares, if it has any.
    pub fn common(&self, db: i32, key: &[u8]) -> Option<&S> {
        self.shares_of(db, key).map(|shares| &shares.common)
    }

    /// Returns the common value of a lock's shares for modification, if it has any.
    pub fn common_mut(&mut self, db: i32, key: &[u8]) -> Option<&mut S> {
        let LockHandles::ShareHandles(shares) = self.handles_mut(db, key)? else { return None };
        Some(&mut shares.common)
    }

    /// Removes and returns the handles of a lock's shares, if it has any, and their common value.
    pub fn take_shares(&mut self, db: i32, key: &[u8]) -> Option<(RemovedShares<T>, S)> {
        self.shares_of(db, key)?;
        let LockHandles::ShareHandles(shares) = self.remove_lock(db, key)? else { return None };
        Some((shares.by_token.into_values(), shares.common))
    }

    pub fn into_entries(self) -> impl Iterator<Item = Id<T>> {
        self.0.into_values().flat_map(NameMap::into_values).flat_map(|handles| {
            let (whole, shares) = match handles {
                LockHandles::Whole(id) => (Some(id), None),
                LockHandles::ShareHandles(shares) => (None, Some(shares)),
            };
            whole.into_iter().chain(shares.into_iter().flat_map(|shares| shares.by_token.into_values()))
        })
    }

    fn shares_of(&self, db: i32, key: &[u8]) -> Option<&ShareHandles<T, S>> {
        let LockHandles::ShareHandles(shares) = self.handles(db, key)? else { return None };
        debug_assert!(!shares.by_token.is_empty(), "a lock without handles is in the index");
        Some(shares)
    }

    fn handles(&self, db: i32, key: &[u8]) -> Option<&LockHandles<T, S>> {
        self.0.get(&db)?.get(key)
    }

    fn handles_mut(&mut self, db: i32, key: &[u8]) -> Option<&mut LockHandles<T, S>> {
        self.0.get_mut(&db)?.get_mut(key)
    }

    fn remove_lock(&mut self, db: i32, key: &[u8]) -> Option<LockHandles<T, S>> {
        let keys = self.0.get_mut(&db)?;
        let removed = keys.remove(key);
        debug_assert!(removed.is_some(), "a lock to remove is not in the index");
        if keys.is_empty() {
            self.0.remove(&db);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Arena;

    const DOOR: HoldKey<'static> = HoldKey { db: 0, key: b"door", share: None };

    fn share(token: &[u8]) -> HoldKey<'_> {
        HoldKey { share: Some(token), ..DOOR }
    }

    /// An index with handles for shares of the door and for the whole gate.
    fn index() -> (LockIndex<u8, usize>, Vec<Id<u8>>) {
        let (mut arena, mut index) = (Arena::new(), LockIndex::new());
        let ids: Vec<_> = (0..4).map(|n| arena.insert(n).unwrap()).collect();
        for (token, &id) in [b"b", b"a", b"c"].into_iter().zip(&ids) {
            index.insert(0, Rc::from(*b"door"), Some(token), id);
        }
        index.insert(7, Rc::from(*b"gate"), None, ids[3]);
        (index, ids)
    }

    #[test]
    fn handle_is_found_by_hold_key() {
        let (index, ids) = index();
        assert_eq!(index.get(share(b"a")), Some(ids[1]));
        assert_eq!(index.get(HoldKey::whole(7, b"gate")), Some(ids[3]));
        for other in [DOOR, share(b"d"), HoldKey::whole(0, b"gate"), HoldKey { db: 7, key: b"gate", share: Some(b"a") }]
        {
            assert_eq!(index.get(other), None, "{other:?}");
        }
        assert!(index.has_shares(0, b"door") && !index.has_shares(7, b"gate"));
        assert_eq!([index.share_count(0, b"door"), index.share_count(7, b"gate")], [3, 0]);
    }

    #[test]
    fn shares_are_ordered_by_token() {
        let (index, ids) = index();
        assert_eq!(index.shares(0, b"door").collect::<Vec<_>>(), [ids[1], ids[0], ids[2]]);
        assert_eq!(index.tokens_from(0, b"door", b"").collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(index.tokens_from(0, b"door", b"b").collect::<Vec<_>>(), [b"b", b"c"]);
        assert_eq!(index.tokens_from(0, b"door", b"bb").collect::<Vec<_>>(), [b"c"]);
    }

    #[test]
    fn lock_is_removed_with_its_last_handle() {
        let (mut index, _) = index();
        index.remove(DOOR);
        index.remove(HoldKey { db: 7, key: b"gate", share: Some(b"a") });
        assert_eq!(index.share_count(0, b"door") + usize::from(index.get(HoldKey::whole(7, b"gate")).is_some()), 4);
        for token in [b"a", b"b", b"c"] {
            assert!(index.get(share(token)).is_some());
            index.remove(share(token));
            assert_eq!(index.get(share(token)), None);
        }
        index.remove(HoldKey::whole(7, b"gate"));
        assert!(index.0.is_empty(), "nothing is kept for a database");
    }

    #[test]
    fn insert_drops_handles_of_other_form() {
        let (mut index, ids) = index();
        index.insert(0, Rc::from(*b"door"), None, ids[2]);
        assert_eq!((index.get(DOOR), index.share_count(0, b"door")), (Some(ids[2]), 0));
        index.insert(0, Rc::from(*b"door"), Some(b"d"), ids[1]);
        assert_eq!((index.get(DOOR), index.share_count(0, b"door")), (None, 1));
    }

    #[test]
    fn shares_are_taken_with_their_common_value() {
        let (mut index, ids) = index();
        index.common_mut(0, b"door").into_iter().for_each(|common| *common += 3);
        assert_eq!((index.common(0, b"door"), index.common(7, b"gate")), (Some(&3), None));
        assert_eq!(index.common_mut(7, b"gate"), None);
        assert!(index.take_shares(7, b"gate").is_none());
        let (taken, common) = index.take_shares(0, b"door").unwrap();
        assert_eq!((taken.collect::<Vec<_>>(), common), (vec![ids[1], ids[0], ids[2]], 3));
        assert!(index.take_shares(0, b"door").is_none());
        assert_eq!(index.into_entries().collect::<Vec<_>>(), [ids[3]]);
    }

    #[test]
    fn dropped_index_returns_every_handle() {
        let (index, ids) = index();
        assert_eq!(index.into_entries().collect::<Vec<_>>(), [ids[1], ids[0], ids[2], ids[3]]);
    }
}
