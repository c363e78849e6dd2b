//! The sessions of all shares of one lock.

use std::rc::Rc;

use super::share_scan::ShareBatch;
use super::{SessionId, SessionLock, SessionTask, Sessions};
use crate::core::{HoldKey, Kind, Lease, OrBug, UnixMs};

/// The number of sessions of one lock's shares for which each of their leases has at least one millisecond.
const SHARES_IN_A_MS: usize = 5;

impl Sessions {
    /// Returns whether shares of a lock have sessions.
    pub fn has_shares(&self, db: i32, key: &[u8]) -> bool {
        !self.is_empty() && self.by_lock.has_shares(db, key)
    }

    /// Returns the sessions of a lock's shares.
    pub fn shares(&self, db: i32, key: &[u8]) -> impl Iterator<Item = SessionId> {
        self.by_lock.shares(db, key)
    }

    /// Ends the sessions of all shares of a lock. [`forget_ended`](Self::forget_ended) removes them one by one.
    pub fn end_shares(&mut self, db: i32, key: &[u8]) {
        self.rechecks.end(db, key);
        self.returning.end(db, key);
        if self.is_empty() {
            return;
        }
        if let Some((sessions, pairs)) = self.by_lock.take_shares(db, key) {
            self.subtract_pairs(pairs);
            self.ended.push_back(sessions);
        }
    }

    /// Records that external writes may have removed shares of a lock, or set its expiry time.
    pub fn mark_for_recheck(&mut self, db: i32, key: &[u8]) {
        if self.has_shares(db, key)
            && !self.returning.mark_for_recheck(db, key)
            && !self.rechecks.mark_for_recheck(db, key)
        {
            self.rechecks.begin(db, key);
        }
    }

    /// Returns whether external writes may have removed shares of a lock.
    pub fn needs_recheck(&self, db: i32, key: &[u8]) -> bool {
        self.rechecks.position(db, key).is_some() || self.returning.needs_recheck(db, key)
    }

    /// Returns a lock whose shares need a recheck.
    pub fn first_to_recheck(&self) -> Option<(i32, Rc<[u8]>)> {
        self.rechecks.first()
    }

    /// Returns the next shares of a lock that need a recheck, or `None` if none do.
    pub fn next_to_recheck(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let batch = if self.rechecks.is_empty() { None } else { self.rechecks.advance(&self.by_lock, db, key) };
        batch.inspect(|batch| self.scan_again(db, key, batch))
    }

    /// Begins to return the shares of a lock to their sessions. Until [`next_to_return`](Self::next_to_return) has returned all
    /// of them, the renewal of one of them is due in turn with other locks.
    pub fn begin_return(&mut self, db: i32, key: &[u8]) {
        self.returning.begin(db, key);
        self.return_in_turn(db, key);
    }

    /// Schedules the renewal with which a lock continues to return its shares, if it is not scheduled.
    pub fn return_in_turn(&mut self, db: i32, key: &[u8]) {
        if let Some(lock) = self.returning.mark_queued(db, key) {
            self.returns.push_back(lock);
        }
    }

    /// Removes and returns the renewal with which the next lock continues to return its shares.
    pub(super) fn pop_return(&mut self) -> Option<SessionTask> {
        while let Some((db, key)) = self.returns.pop_front() {
            if !self.returning.mark_dequeued(db, &key) {
                continue; // The sessions of all its shares have ended.
            }
            let Some(token) = self.next_token_to_return(db, &key) else { continue };
            let next = self.find(HoldKey { db, key: &key, share: Some(&token) });
            if let Some(id) = next.or_bug("a share in the index has no session") {
                return Some(SessionTask::Renew(id));
            }
        }
        None
    }

    fn next_token_to_return(&self, db: i32, key: &[u8]) -> Option<Box<[u8]>> {
        let from = self.returning.position(db, key)?;
        self.by_lock.tokens_from(db, key, from).next().map(Box::from)
    }

    /// Returns whether the shares of any lock are being returned to their sessions.
    pub fn is_returning_any(&self) -> bool {
        !self.returning.is_empty()
    }

    /// Returns whether the shares of a lock are being returned to their sessions.
    pub fn is_returning(&self, db: i32, key: &[u8]) -> bool {
        self.returning.position(db, key).is_some()
    }

    /// Returns whether a share has not been returned to its session yet.
    pub fn is_to_return(&self, hold_key: HoldKey<'_>) -> bool {
        let position = self.returning.position(hold_key.db, hold_key.key);
        position.is_some_and(|from| hold_key.share.is_some_and(|token| token >= from))
    }

    /// Returns an upper bound of the number of shares of a lock that have not been returned to their sessions yet.
    pub fn to_return(&self, db: i32, key: &[u8]) -> usize {
        if self.is_returning(db, key) { self.by_lock.share_count(db, key) } else { 0 }
    }

    /// Returns the next shares of a lock to return to their sessions, or `None` if they are not being returned.
    pub fn next_to_return(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let batch = if self.returning.is_empty() { None } else { self.returning.advance(&self.by_lock, db, key) }?;
        self.scan_again(db, key, &batch);
        if batch.next.is_some() {
            self.return_in_turn(db, key);
        }
        Some(batch)
    }

    /// Begins another recheck of a lock that external writes have changed during the last scan.
    fn scan_again(&mut self, db: i32, key: &[u8], last: &ShareBatch) {
        if last.needs_recheck {
            self.rechecks.begin(db, key);
        }
    }

    /// Continues to return the shares of a lock after the session `ended` has been removed, with which that was to continue.
    pub(super) fn continue_return_without(&mut self, ended: &SessionLock) {
        let SessionLock { db, ref key, .. } = *ended;
        if self.returning.position(db, key).is_none() {
            return;
        }
        if self.next_token_to_return(db, key).is_some() {
            return self.return_in_turn(db, key);
        }
        let needs_recheck = self.returning.needs_recheck(db, key);
        self.returning.end(db, key);
        if needs_recheck {
            self.rechecks.begin(db, key);
        }
    }

    /// Schedules the immediate renewal of one share of a lock.
    pub fn renew_one_share(&mut self, db: i32, key: &[u8]) {
        let one = self.shares(db, key).next();
        one.into_iter().for_each(|one| self.schedule_renewal_at(one, UnixMs::MIN));
    }

    /// Raises the lease of a share to one millisecond for every five sessions of the lock's shares, if it is shorter. Otherwise,
    /// with thousands of them, it would expire before all were renewed or returned.
    pub(super) fn raise_lease(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.lock.kind == Kind::Shared) else {
            return;
        };
        let count = self.by_lock.share_count(session.lock.db, &session.lock.key);
        let least_ms = i64::try_from(count.div_euclid(SHARES_IN_A_MS)).unwrap_or(i64::MAX);
        session.lock.lease = Lease::from_ms(least_ms).map_or(session.lock.lease, |least| session.lock.lease.max(least));
    }

    /// Removes one session that has ended together with others. Returns false if there is none.
    pub fn forget_ended(&mut self) -> bool {
        let Some(of_lock) = self.ended.front_mut() else { return false };
        match of_lock.next() {
            Some(id) => _ = self.remove(id),
            None => _ = self.ended.pop_front(),
        }
        true
    }
}

#[cfg(test)]
mod tests;
