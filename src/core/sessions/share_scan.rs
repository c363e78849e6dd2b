//! Looks at the sessions of all shares of a lock, so many at a time.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::core::LockIndex;

/// The number of shares of one lock that are processed in one step.
pub const MAX_SHARE_BATCH: usize = 100;

/// Locks, each with how far a walk over its shares has come.
pub struct ShareScans(BTreeMap<(i32, Rc<[u8]>), ShareScan>);

struct ShareScan {
    /// The token that comes next, or one before it.
    from: Box<[u8]>,
    /// Whether others may have removed shares since the walk began.
    needs_recheck: bool,
    /// Whether the lock stands in a queue of those that go on.
    is_queued: bool,
}

/// The next shares in a walk.
pub struct ShareBatch {
    pub tokens: Vec<Box<[u8]>>,
    /// The token that comes after them, or `None` at the end of the walk.
    pub next: Option<Box<[u8]>>,
    /// Whether others may have removed shares while the walk went on that has ended.
    pub(super) needs_recheck: bool,
}

impl ShareScans {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Begins a walk over the shares of a lock, anew if one is under way.
    pub fn begin(&mut self, db: i32, key: &[u8]) {
        let scan = ShareScan { from: Box::default(), needs_recheck: false, is_queued: false };
        let before = self.0.insert((db, key.into()), scan);
        if before.is_some_and(|before| before.is_queued) {
            self.mark_queued(db, key);
        }
    }

    /// Records that the lock of a walk stands in a queue. Returns its name if it did not, and there is a walk.
    pub fn mark_queued(&mut self, db: i32, key: &[u8]) -> Option<(i32, Rc<[u8]>)> {
        let lock = (db, key.into());
        let scan = self.0.get_mut(&lock)?;
        (!std::mem::replace(&mut scan.is_queued, true)).then_some(lock)
    }

    /// Records that the lock of a walk stands in no queue any more. Returns whether it did.
    pub fn mark_dequeued(&mut self, db: i32, key: &Rc<[u8]>) -> bool {
        let scan = self.0.get_mut(&(db, Rc::clone(key)));
        scan.is_some_and(|scan| std::mem::replace(&mut scan.is_queued, false))
    }

    /// Ends a walk, if there is one.
    pub fn end(&mut self, db: i32, key: &[u8]) {
        if !self.is_empty() {
            self.0.remove(&(db, key.into()));
        }
    }

    /// Returns a lock with a walk under way.
    pub fn first(&self) -> Option<(i32, Rc<[u8]>)> {
        self.0.first_key_value().map(|(lock, _)| lock.clone())
    }

    /// Returns the token with which the walk over a lock's shares goes on, or one before it.
    pub fn position(&self, db: i32, key: &[u8]) -> Option<&[u8]> {
        if self.is_empty() { None } else { self.0.get(&(db, key.into())).map(|scan| &*scan.from) }
    }

    /// Records that others may have removed shares. Returns whether there is a walk over them.
    pub fn mark_for_recheck(&mut self, db: i32, key: &[u8]) -> bool {
        let scan = if self.is_empty() { None } else { self.0.get_mut(&(db, key.into())) };
        scan.map(|scan| scan.needs_recheck = true).is_some()
    }

    /// Returns whether others may have removed shares while the walk went on.
    pub fn needs_recheck(&self, db: i32, key: &[u8]) -> bool {
        !self.is_empty() && self.0.get(&(db, key.into())).is_some_and(|scan| scan.needs_recheck)
    }

    /// Returns the next shares in a walk, which is over if there are no more. Returns `None` if there is no walk.
    pub fn advance<T>(&mut self, shares: &LockIndex<T>, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let lock = (db, key.into());
        let scan = self.0.get_mut(&lock)?;
        let rest = shares.tokens_from(db, key, &scan.from).take(MAX_SHARE_BATCH.saturating_add(1));
        let mut tokens: Vec<Box<[u8]>> = rest.map(Box::from).collect();
        let next = if tokens.len() > MAX_SHARE_BATCH { tokens.pop() } else { None };
        let needs_recheck = match &next {
            Some(token) => {
                scan.from.clone_from(token);
                false
            }
            None => self.0.remove(&lock).is_some_and(|scan| scan.needs_recheck),
        };
        Some(ShareBatch { tokens, next, needs_recheck })
    }

    /// Takes the walks apart.
    pub fn into_entries(self) -> impl Iterator<Item = (i32, Rc<[u8]>)> {
        self.0.into_keys()
    }
}
