//! The holds of a lock, as far as something is kept for them: a session, a revocation, or the delivery of their grant.

use std::collections::btree_map::IntoValues;
use std::mem;
use std::ops::Bound;

use super::Locks;
use super::record::{Hold, HoldId, Holds, RecordId, Shares};
use super::tasks::Work;
use super::types::HoldKey;
use crate::core::tables::{NEVER, Sweep};
use crate::core::{Holder, Kind, OrBug, UnixMs, steps};

/// The handles of shares that have ended together.
pub type EndedShares = IntoValues<Box<[u8]>, HoldId>;

impl Hold {
    /// Returns the token of a share, or `None` for the whole lock.
    pub fn share(&self) -> Option<&[u8]> {
        (self.kind == Kind::Shared).then_some(&*self.owner)
    }

    /// Returns whether `holder` is the holder of this hold.
    pub fn matches<L>(&self, holder: &Holder<'_, L>) -> bool {
        holder.kind == self.kind && *holder.owner == *self.owner
    }

    fn is_of(&self, kind: Kind, owner: &[u8]) -> bool {
        self.kind == kind && *self.owner == *owner
    }

    fn is_unused(&self) -> bool {
        self.session.is_none() && self.revocation.is_none() && self.delivery.is_none()
    }
}

impl Holds {
    fn is_empty(&self) -> bool {
        self.whole.is_none() && self.shares.is_none()
    }
}

impl Shares {
    fn get(&self, token: &[u8]) -> Option<HoldId> {
        self.in_session.get(token).or_else(|| self.others.get(token)).copied()
    }

    /// Records that a share has a session now.
    pub fn begin_session(&mut self, token: &[u8]) {
        if let Some((token, id)) = self.others.remove_entry(token) {
            self.in_session.insert(token, id);
        }
    }

    /// Records that a share has no session any more.
    pub fn end_session(&mut self, token: &[u8]) {
        if let Some((token, id)) = self.in_session.remove_entry(token) {
            self.others.insert(token, id);
        }
    }

    /// Returns the shares with sessions from `token` on.
    pub fn sessions_from<'s>(&'s self, token: &[u8]) -> impl Iterator<Item = (&'s [u8], HoldId)> + use<'s> {
        let from = (Bound::Included(token), Bound::Unbounded);
        self.in_session.range::<[u8], _>(from).map(|(token, id)| (&**token, *id)).inspect(|_| steps::count())
    }
}

impl Locks {
    fn holds_of(&self, record: RecordId) -> Option<&Holds> {
        self.records.get(record)?.holds.as_deref().filter(|holds| holds.epoch == self.holds_epoch)
    }

    fn holds_mut(&mut self, record: RecordId) -> Option<&mut Holds> {
        self.records.get_mut(record)?.holds.as_deref_mut().filter(|holds| holds.epoch == self.holds_epoch)
    }

    /// Forgets the holds of a record, if there are none left or they are of an earlier time.
    pub(super) fn drop_holds_if_unused(&mut self, record: RecordId) {
        if self.holds_of(record).is_some_and(|holds| !holds.is_empty()) {
            return;
        }
        let dropped = self.records.get_mut(record).and_then(|record| record.holds.take());
        let state = dropped.and_then(|holds| holds.shares).map(|shares| shares.state);
        self.reschedule(record, Work::Return, state.unwrap_or_default().return_due(), NEVER);
    }

    pub(super) fn shares_of(&self, record: RecordId) -> Option<&Shares> {
        self.holds_of(record)?.shares.as_deref()
    }

    pub(super) fn shares_mut(&mut self, record: RecordId) -> Option<&mut Shares> {
        self.holds_mut(record)?.shares.as_deref_mut()
    }

    pub fn hold(&self, id: HoldId) -> Option<&Hold> {
        self.holds.get(id)
    }

    /// Returns the hold of a lock that is held alone, or of the share with a token.
    pub fn hold_of(&self, record: RecordId, share: Option<&[u8]>) -> Option<HoldId> {
        let holds = self.holds_of(record)?;
        match share {
            None => holds.whole,
            Some(token) => holds.shares.as_ref()?.get(token),
        }
    }

    /// Returns the hold with a key, if something is kept for it.
    pub fn find_hold(&self, HoldKey { db, key, share }: HoldKey<'_>) -> Option<HoldId> {
        self.hold_of(self.record_of(db, key)?, share)
    }

    /// Returns the holds of an owner, as the holder of the whole lock and of a share.
    fn holds_of_owner(&self, record: RecordId, owner: &[u8]) -> impl Iterator<Item = HoldId> {
        let holds = [self.hold_of(record, None), self.hold_of(record, Some(owner))].into_iter().flatten();
        holds.filter(|id| self.hold(*id).is_some_and(|hold| *hold.owner == *owner))
    }

    /// Returns whether a lock that its owner does not hold now is to be returned to it: its lease has ended by itself, although its
    /// session goes on, or its grace period does.
    pub fn will_regain(&self, record: RecordId, owner: &[u8], now: UnixMs) -> bool {
        self.holds_of_owner(record, owner).filter_map(|id| self.hold(id)).any(|Hold { session, revocation, .. }| {
            session.as_ref().is_some_and(|session| session.has_expired(now))
                || revocation.as_ref().is_some_and(|revocation| revocation.return_until(now).is_some())
        })
    }

    /// Ends what would return a lock to its owner, which has released it and does not hold it now. A re-entrant lock with several
    /// holds stays: the release may have been that of an inner one.
    pub fn end_holds_of(&mut self, record: RecordId, owner: &[u8]) {
        let holds: Vec<_> = self.holds_of_owner(record, owner).collect();
        for id in holds {
            let is_outer = |hold: &Hold| {
                let (session, revocation) = (hold.session.as_ref(), hold.revocation.as_ref());
                session.is_some_and(|session| session.holds > 1) || revocation.is_some_and(|it| it.holds > 1)
            };
            if !self.hold(id).is_some_and(is_outer) {
                self.end_session_of(id);
                self.remove_revocation(id);
            }
        }
    }

    /// Returns whether a hold exists and has not ended together with other shares.
    pub fn is_current(&self, id: HoldId) -> bool {
        self.hold(id).is_some_and(|hold| self.hold_of(hold.record, hold.share()) == Some(id))
    }

    /// Returns the hold of an owner, or a new one. A hold of the whole lock replaces that of another owner.
    pub(super) fn hold_for(&mut self, db: i32, key: &[u8], kind: Kind, owner: &[u8]) -> Option<HoldId> {
        let record = self.record_for(db, key)?;
        let share = (kind == Kind::Shared).then_some(owner);
        if let Some(known) = self.hold_of(record, share) {
            if self.hold(known).is_some_and(|hold| hold.is_of(kind, owner)) {
                return Some(known);
            }
            self.remove_hold(known);
        }
        let record = self.record_for(db, key)?;
        let hold = Hold { record, kind, owner: owner.into(), session: None, revocation: None, delivery: None };
        let id = self.holds.insert(hold)?;
        self.drop_holds_if_unused(record);
        let epoch = self.holds_epoch;
        let record = self.records.get_mut(record).or_bug("a new hold has no record")?;
        record.hold_count = record.hold_count.saturating_add(1);
        let holds = record.holds.get_or_insert_with(|| Box::new(Holds { epoch, ..Holds::default() }));
        match share {
            None => holds.whole = Some(id),
            Some(token) => _ = holds.shares.get_or_insert_default().others.insert(token.into(), id),
        }
        Some(id)
    }

    /// Removes a hold with all that is kept for it.
    pub(super) fn remove_hold(&mut self, id: HoldId) {
        self.take_session(id);
        self.take_revocation(id);
        if let Some(hold) = self.holds.get_mut(id) {
            hold.delivery = None;
        }
        self.drop_hold_if_unused(id);
    }

    /// Drops a hold for which nothing is kept any more, and its record if that was the last thing in it.
    pub(super) fn drop_hold_if_unused(&mut self, id: HoldId) {
        if !self.hold(id).is_some_and(Hold::is_unused) {
            return;
        }
        let is_current = self.is_current(id);
        let Some(hold) = self.holds.remove(id) else { return };
        if let Some(record) = self.records.get_mut(hold.record).or_bug("a hold had no record") {
            debug_assert!(record.hold_count > 0, "a hold was not counted");
            record.hold_count = record.hold_count.saturating_sub(1);
        }
        if let Some(holds) = self.holds_mut(hold.record).filter(|_| is_current) {
            match (hold.share(), &mut holds.shares) {
                (None, _) => holds.whole = None,
                (Some(token), Some(shares)) => {
                    shares.others.remove(token);
                    if shares.others.is_empty() && shares.in_session.is_empty() {
                        holds.shares = None;
                    }
                }
                (Some(_), None) => {}
            }
        }
        self.drop_holds_if_unused(hold.record);
        self.drop_if_unused(hold.record);
    }

    /// Takes the shares with sessions of a lock out of its record. They are not current any more.
    pub(super) fn take_sessions(&mut self, record: RecordId) -> Option<EndedShares> {
        let holds = self.holds_mut(record)?;
        let shares = holds.shares.as_mut()?;
        let taken = Shares { others: mem::take(&mut shares.others), to_return: shares.to_return, ..Shares::default() };
        let Shares { in_session, .. } = mem::replace(&mut **shares, taken);
        if shares.others.is_empty() {
            holds.shares = None;
            self.drop_holds_if_unused(record);
        }
        Some(in_session.into_values())
    }

    /// Drops all holds: the server has become a master or a replica. They are removed one by one.
    pub fn drop_holds(&mut self) {
        if self.holds.is_empty() {
            return;
        }
        (self.sessions, self.checks) = (0, Sweep::END);
        self.rechecks.clear();
        self.holds_epoch = self.holds_epoch.wrapping_add(1);
        self.purge.begin();
    }
}
