//! Scans over the shares of a lock that have sessions, in batches.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::core::LockIndex;

/// The number of shares of one lock that are processed in one step.
pub const MAX_SHARE_BATCH: usize = 100;

/// Locks, each with the position of a scan over its shares.
pub struct ShareScans(BTreeMap<(i32, Rc<[u8]>), ShareScan>);

struct ShareScan {
    /// A token that is not after the next token of the scan.
    from: Box<[u8]>,
    /// Whether external writes may have removed shares since the scan began.
    needs_recheck: bool,
    /// Whether the lock is in the queue of locks whose scans continue.
    is_queued: bool,
}

/// The next shares of a scan.
pub struct ShareBatch {
    pub tokens: Vec<Box<[u8]>>,
    /// The next token after them, or `None` at the end of the scan.
    pub next: Option<Box<[u8]>>,
    /// Whether the scan has ended and external writes may have removed shares during it.
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

    /// Begins a scan over the shares of a lock. It replaces an earlier scan.
    pub fn begin(&mut self, db: i32, key: &[u8]) {
        let scan = ShareScan { from: Box::default(), needs_recheck: false, is_queued: false };
        let before = self.0.insert((db, key.into()), scan);
        if before.is_some_and(|before| before.is_queued) {
            self.mark_queued(db, key);
        }
    }

    /// Records that the lock of a scan is in a queue. Returns its name if there is a scan and it was not in the queue.
    pub fn mark_queued(&mut self, db: i32, key: &[u8]) -> Option<(i32, Rc<[u8]>)> {
        let lock = (db, key.into());
        let scan = self.0.get_mut(&lock)?;
        (!std::mem::replace(&mut scan.is_queued, true)).then_some(lock)
    }

    /// Records that the lock of a scan is no longer in a queue. Returns whether it was.
    pub fn mark_dequeued(&mut self, db: i32, key: &Rc<[u8]>) -> bool {
        let scan = self.0.get_mut(&(db, Rc::clone(key)));
        scan.is_some_and(|scan| std::mem::replace(&mut scan.is_queued, false))
    }

    /// Ends the scan of a lock, if there is one.
    pub fn end(&mut self, db: i32, key: &[u8]) {
        if !self.is_empty() {
            self.0.remove(&(db, key.into()));
        }
    }

    /// Returns a lock with a scan.
    pub fn first(&self) -> Option<(i32, Rc<[u8]>)> {
        self.0.first_key_value().map(|(lock, _)| lock.clone())
    }

    /// Returns the position of the scan of a lock: a token that is not after its next token.
    pub fn position(&self, db: i32, key: &[u8]) -> Option<&[u8]> {
        if self.is_empty() { None } else { self.0.get(&(db, key.into())).map(|scan| &*scan.from) }
    }

    /// Records that external writes may have removed shares. Returns whether the lock has a scan.
    pub fn mark_for_recheck(&mut self, db: i32, key: &[u8]) -> bool {
        let scan = if self.is_empty() { None } else { self.0.get_mut(&(db, key.into())) };
        scan.map(|scan| scan.needs_recheck = true).is_some()
    }

    /// Returns whether external writes may have removed shares during the scan.
    pub fn needs_recheck(&self, db: i32, key: &[u8]) -> bool {
        !self.is_empty() && self.0.get(&(db, key.into())).is_some_and(|scan| scan.needs_recheck)
    }

    /// Returns the next shares of a scan, and ends the scan if there are no more. Returns `None` if there is no scan.
    pub fn advance<T>(&mut self, shares: &LockIndex<T>, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let lock = (db, key.into());
        let scan = self.0.get_mut(&lock)?;
        let rest = shares.tokens_from(db, key, &scan.from).take(MAX_SHARE_BATCH.saturating_add(1));
        let mut tokens: Vec<Box<[u8]>> = rest.map(Box::from).collect();
        let next = if tokens.len() > MAX_SHARE_BATCH { tokens.pop() } else { None };
        let needs_recheck = match &next {
            Some(token) => {
                debug_assert!(*token > scan.from, "the tokens of a scan rise");
                scan.from.clone_from(token);
                false
            }
            None => self.0.remove(&lock).is_some_and(|scan| scan.needs_recheck),
        };
        Some(ShareBatch { tokens, next, needs_recheck })
    }

    /// Returns the locks of all scans and drops the table.
    pub fn into_entries(self) -> impl Iterator<Item = (i32, Rc<[u8]>)> {
        self.0.into_keys()
    }
}
