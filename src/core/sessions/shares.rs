//! The sessions of the shares of a lock, as far as it has several.

use std::rc::Rc;

use super::{SessionId, Sessions};
use crate::core::{Kind, Lease, UnixMs};

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
        self.take_doubt(db, key);
        if self.is_empty() {
            return;
        }
        if let Some((sessions, pairs)) = self.by_lock.take_shares(db, key) {
            self.pairs = self.pairs.saturating_sub(pairs);
            self.ended.push_back(sessions);
        }
    }

    /// Records that others may have removed shares of a lock, or set its expiry time.
    pub fn doubt_shares(&mut self, db: i32, key: &[u8]) {
        if self.has_shares(db, key) {
            self.doubtful.insert((db, key.into()));
        }
    }

    /// Returns whether others may have removed shares of a lock, and forgets it.
    pub fn take_doubt(&mut self, db: i32, key: &[u8]) -> bool {
        !self.doubtful.is_empty() && self.doubtful.remove(&(db, key.into()))
    }

    /// Returns a lock of which others may have removed shares.
    pub fn first_doubtful(&self) -> Option<(i32, Rc<[u8]>)> {
        self.doubtful.first().cloned()
    }

    /// Schedules the renewal of one share of a lock at once.
    pub fn renew_one_share(&mut self, db: i32, key: &[u8]) {
        let one = self.shares(db, key).next();
        one.into_iter().for_each(|one| self.schedule_renewal_at(one, UnixMs::MIN));
    }

    /// Raises the lease of a share that is renewed to a millisecond for every five shares of the lock with sessions, if it is
    /// shorter: with thousands of them it would be over before all were renewed, or given back.
    pub fn raise_lease(&mut self, id: SessionId) {
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
            Some(id) if !self.is_current(id) => _ = self.remove(id),
            Some(_) => {}
            None => _ = self.ended.pop_front(),
        }
        true
    }
}
