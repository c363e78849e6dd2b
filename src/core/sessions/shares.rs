//! The sessions of the shares of a lock, as far as it has several.

use std::rc::Rc;

use super::share_scan::ShareBatch;
use super::{SessionId, SessionLock, SessionTask, Sessions};
use crate::core::{HoldKey, Kind, Lease, UnixMs};

/// The number of shares of one lock with sessions for which their leases have one millisecond at least.
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

    /// Ends the sessions of all shares of a lock. [`forget_ended`](Self::forget_ended) works them off.
    pub fn end_shares(&mut self, db: i32, key: &[u8]) {
        self.rechecks.end(db, key);
        self.returning.end(db, key);
        if self.is_empty() {
            return;
        }
        if let Some((sessions, pairs)) = self.by_lock.take_shares(db, key) {
            self.pairs = self.pairs.saturating_sub(pairs);
            self.ended.push_back(sessions);
        }
    }

    /// Records that others may have removed shares of a lock, or set its expiry time.
    pub fn mark_for_recheck(&mut self, db: i32, key: &[u8]) {
        if self.has_shares(db, key)
            && !self.returning.mark_for_recheck(db, key)
            && !self.rechecks.mark_for_recheck(db, key)
        {
            self.rechecks.begin(db, key);
        }
    }

    /// Returns whether others may have removed shares of a lock.
    pub fn needs_recheck(&self, db: i32, key: &[u8]) -> bool {
        self.rechecks.position(db, key).is_some() || self.returning.needs_recheck(db, key)
    }

    /// Returns a lock of which others may have removed shares.
    pub fn first_to_recheck(&self) -> Option<(i32, Rc<[u8]>)> {
        self.rechecks.first()
    }

    /// Returns the next shares of a lock of which others may have removed some, or `None` if they have not.
    pub fn next_to_recheck(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let batch = if self.rechecks.is_empty() { None } else { self.rechecks.advance(&self.by_lock, db, key) };
        batch.inspect(|batch| self.scan_again(db, key, batch))
    }

    /// Begins to give the shares of a lock back to their sessions. Until [`next_to_return`](Self::next_to_return) has
    /// returned them all, the renewal of one of them is due behind those of other locks.
    pub fn begin_return(&mut self, db: i32, key: &[u8]) {
        self.returning.begin(db, key);
        self.return_in_turn(db, key);
    }

    /// Schedules the renewal with which a lock goes on to give its shares back, if that is not scheduled.
    pub fn return_in_turn(&mut self, db: i32, key: &[u8]) {
        if let Some(lock) = self.returning.mark_queued(db, key) {
            self.returns.push_back(lock);
        }
    }

    /// Returns the renewal with which the next lock goes on to give its shares back.
    pub(super) fn pop_return(&mut self) -> Option<SessionTask> {
        while let Some((db, key)) = self.returns.pop_front() {
            if !self.returning.mark_dequeued(db, &key) {
                continue; // All its shares have gone meanwhile.
            }
            let token = self.next_token_to_return(db, &key);
            let next = token.and_then(|token| self.find(HoldKey { db, key: &key, share: Some(&token) }));
            if let Some(id) = next {
                return Some(SessionTask::Renew(id));
            }
        }
        None
    }

    fn next_token_to_return(&self, db: i32, key: &[u8]) -> Option<Box<[u8]>> {
        let from = self.returning.position(db, key)?;
        self.by_lock.tokens_from(db, key, from).next().map(Box::from)
    }

    /// Returns whether the shares of any lock are being given back to their sessions.
    pub fn is_returning_any(&self) -> bool {
        !self.returning.is_empty()
    }

    /// Returns whether the shares of a lock are being given back to their sessions.
    pub fn is_returning(&self, db: i32, key: &[u8]) -> bool {
        self.returning.position(db, key).is_some()
    }

    /// Returns whether a session may not have its share back yet.
    pub fn is_to_return(&self, hold_key: HoldKey<'_>) -> bool {
        let position = self.returning.position(hold_key.db, hold_key.key);
        position.is_some_and(|from| hold_key.share.is_some_and(|token| token >= from))
    }

    /// Returns the number of shares of a lock that may not have been given back yet, or more.
    pub fn to_return(&self, db: i32, key: &[u8]) -> usize {
        if self.is_returning(db, key) { self.by_lock.share_count(db, key) } else { 0 }
    }

    /// Returns the next shares of a lock that are given back to their sessions, or `None` if they are not.
    pub fn next_to_return(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let batch = if self.returning.is_empty() { None } else { self.returning.advance(&self.by_lock, db, key) }?;
        self.scan_again(db, key, &batch);
        if batch.next.is_some() {
            self.return_in_turn(db, key);
        }
        Some(batch)
    }

    /// Begins another look at a lock that others have changed during the last one.
    fn scan_again(&mut self, db: i32, key: &[u8], last: &ShareBatch) {
        if last.needs_recheck {
            self.rechecks.begin(db, key);
        }
    }

    /// Sees to it that shares are given back also when the session with which that was to go on has ended.
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

    /// Schedules the renewal of one share of a lock at once.
    pub fn renew_one_share(&mut self, db: i32, key: &[u8]) {
        let one = self.shares(db, key).next();
        one.into_iter().for_each(|one| self.schedule_renewal_at(one, UnixMs::MIN));
    }

    /// Raises the lease of a share that is renewed to a millisecond for every five shares of the lock with sessions, if it is
    /// shorter: with thousands of them it would be over before all were renewed, or given back.
    pub(super) fn raise_lease(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.lock.kind == Kind::Shared) else {
            return;
        };
        let count = self.by_lock.share_count(session.lock.db, &session.lock.key);
        let least_ms = i64::try_from(count.div_euclid(SHARES_IN_A_MS)).unwrap_or(i64::MAX);
        session.lock.lease = Lease::from_ms(least_ms).map_or(session.lock.lease, |least| session.lock.lease.max(least));
    }

    /// Forgets one session that has ended with others. Returns whether there was one.
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
