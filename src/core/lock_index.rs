//! Maps locks and their shares, by database, key and token, to entries of an arena.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::{Id, Kind};

/// What one holder has: a lock alone, or one share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat<'n> {
    pub db: i32,
    pub key: &'n [u8],
    /// The token of the share, or `None` for the lock alone.
    pub share: Option<&'n [u8]>,
}

impl<'n> Seat<'n> {
    /// Returns what `owner` has if it holds a lock of this kind.
    pub fn of(db: i32, key: &'n [u8], kind: Kind, owner: &'n [u8]) -> Self {
        Self { db, key, share: (kind == Kind::Shared).then_some(owner) }
    }

    /// Returns the seat of a lock that is held alone, by whomever.
    pub fn whole(db: i32, key: &'n [u8]) -> Self {
        Self { db, key, share: None }
    }
}

/// A map from seats to handles. A lock has a handle as a whole, or handles of its shares.
///
/// There is one map for each database that has entries, so that a look-up does not copy the key.
pub struct LockIndex<T>(BTreeMap<i32, HashMap<Rc<[u8]>, Seats<T>>>);

/// The handles of one lock.
enum Seats<T> {
    Whole(Id<T>),
    Shares(Shares<T>),
}

/// Handles by the tokens of shares, in an order that does not depend on chance: a simulation can be repeated. It is boxed
/// because most locks are held alone.
type Shares<T> = Box<BTreeMap<Box<[u8]>, Id<T>>>;

impl<T> LockIndex<T> {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns the handle of a seat, if it has one.
    pub fn get(&self, seat: Seat<'_>) -> Option<Id<T>> {
        match (self.seats(seat.db, seat.key)?, seat.share) {
            (Seats::Whole(id), None) => Some(*id),
            (Seats::Shares(shares), Some(token)) => shares.get(token).copied(),
            _ => None,
        }
    }

    /// Returns whether a share of a lock has a handle.
    pub fn has_shares(&self, db: i32, key: &[u8]) -> bool {
        self.shares(db, key).next().is_some()
    }

    /// Returns the handles of a lock's shares.
    pub fn shares(&self, db: i32, key: &[u8]) -> impl Iterator<Item = Id<T>> {
        let shares = match self.seats(db, key) {
            Some(Seats::Shares(shares)) => Some(shares),
            _ => None,
        };
        shares.into_iter().flat_map(|shares| shares.values().copied())
    }

    /// Returns the number of handles.
    #[cfg(feature = "simulated")]
    pub fn seat_count(&self) -> usize {
        let count = |seats: &Seats<T>| match seats {
            Seats::Whole(_) => 1,
            Seats::Shares(shares) => shares.len(),
        };
        self.0.values().flat_map(HashMap::values).map(count).sum()
    }

    /// Sets the handle of a seat. Handles that the lock has in the other form are dropped.
    pub fn insert(&mut self, db: i32, key: Rc<[u8]>, share: Option<&[u8]>, id: Id<T>) {
        let keys = self.0.entry(db).or_default();
        match (keys.get_mut(&key), share) {
            (Some(Seats::Shares(shares)), Some(token)) => _ = shares.insert(token.into(), id),
            (_, Some(token)) => _ = keys.insert(key, Seats::Shares(Box::new(BTreeMap::from([(token.into(), id)])))),
            (_, None) => _ = keys.insert(key, Seats::Whole(id)),
        }
    }

    /// Removes the handle of a seat.
    pub fn remove(&mut self, seat: Seat<'_>) {
        let is_empty = match (self.seats_mut(seat.db, seat.key), seat.share) {
            (Some(Seats::Whole(_)), None) => true,
            (Some(Seats::Shares(shares)), Some(token)) => {
                shares.remove(token);
                shares.is_empty()
            }
            _ => false,
        };
        if is_empty {
            self.remove_lock(seat.db, seat.key);
        }
    }

    /// Removes and returns the handles of a lock's shares.
    pub fn take_shares(&mut self, db: i32, key: &[u8]) -> impl Iterator<Item = Id<T>> {
        let taken = if self.has_shares(db, key) { self.remove_lock(db, key) } else { None };
        let shares = match taken {
            Some(Seats::Shares(shares)) => Some(shares),
            _ => None,
        };
        shares.into_iter().flat_map(|shares| shares.into_values())
    }

    fn seats(&self, db: i32, key: &[u8]) -> Option<&Seats<T>> {
        self.0.get(&db)?.get(key)
    }

    fn seats_mut(&mut self, db: i32, key: &[u8]) -> Option<&mut Seats<T>> {
        self.0.get_mut(&db)?.get_mut(key)
    }

    fn remove_lock(&mut self, db: i32, key: &[u8]) -> Option<Seats<T>> {
        let keys = self.0.get_mut(&db)?;
        let removed = keys.remove(key);
        if keys.is_empty() {
            self.0.remove(&db);
        }
        removed
    }
}
