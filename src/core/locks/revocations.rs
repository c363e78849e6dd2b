//! Revocations: locks to be released because their holders have disconnected.
//!
//! A lock is revoked when the connection of its session has closed, or when no connection has received its grant. A
//! revocation belongs to one grant, and a later grant of the lock cancels it.

use super::record::{Hold, HoldId, RecordId, Revocation, Session, SessionLeaseEnd};
use super::tasks::Work;
use super::{Grant, HoldKey, Locks};
use crate::core::tables::{AT_ONCE, NEVER};
use crate::core::{Cause, Holder, UnixMs, bug};

impl Revocation {
    /// Creates the revocation of a grant, which has one hold.
    fn of_grant(grant: Grant) -> Self {
        Self {
            grant: Some(grant),
            all_holds: false,
            grace_end: None,
            lease_end: SessionLeaseEnd::Unknown,
            holds: 1,
            was_to_return: false,
            due: AT_ONCE,
        }
    }

    /// Creates the revocation of a session's lock, with all its holds.
    pub(super) fn of_session(session: &Session, grace_end: Option<UnixMs>, was_to_return: bool) -> Self {
        let (lease_end, holds) = (session.lease_end, session.holds);
        Self { grant: None, all_holds: true, grace_end, lease_end, holds, was_to_return, due: AT_ONCE }
    }

    /// Returns the end of the grace period, if it has not passed at `now`. A grant that no connection has received has none.
    pub fn grace_end_after(&self, now: UnixMs) -> Option<UnixMs> {
        self.grace_end.filter(|&end| end > now && self.grant.is_none())
    }

    /// Returns the end of the grace period to which the lock is returned if it is free: its lease has ended by itself before the
    /// server could set it. If the lock is free earlier, an external write has removed it.
    pub fn return_until(&self, now: UnixMs) -> Option<UnixMs> {
        self.grace_end_after(now).filter(|_| self.lease_end.has_passed(now))
    }
}

impl Hold {
    /// Returns whether `holder` still holds the lock as it was granted, if that is to be revoked.
    pub fn is_revoked_from<L>(&self, holder: &Holder<'_, L>) -> bool {
        let revocation = self.revocation.as_ref();
        self.matches(holder) && revocation.is_some_and(|revocation| revocation.all_holds || holder.holds == 1)
    }
}

impl Locks {
    pub fn has_revocations(&self) -> bool {
        self.revocations > 0
    }

    /// Returns the hold of a lock or of the share with a token, if it is to be revoked: also if the
    /// connection of its session has just closed.
    pub fn revocation_of(&mut self, record: RecordId, share: Option<&[u8]>) -> Option<HoldId> {
        let id = self.hold_of(record, share)?;
        self.detach_closed_of(id);
        self.hold(id)?.revocation.as_ref().map(|_| id)
    }

    /// Returns the tokens of the shares of a lock that are to be revoked.
    pub fn revoked_shares(&self, record: RecordId) -> impl Iterator<Item = &[u8]> {
        let others = self.shares_of(record).into_iter().flat_map(|shares| &shares.others);
        others
            .filter(|(_, id)| self.hold(**id).is_some_and(|hold| hold.revocation.is_some()))
            .map(|(token, _)| &**token)
    }

    /// Revokes a grant that no connection has received.
    pub fn revoke_grant(&mut self, grant: Grant) {
        let Grant { db, key, claim, .. } = &grant;
        if let Some(id) = self.hold_for(*db, key, claim.kind, &claim.owner) {
            self.revoke(id, Revocation::of_grant(grant));
        }
    }

    /// Adds a revocation, which is due now. If the grant and the session of a hold have ended together, they are merged.
    pub(super) fn revoke(&mut self, id: HoldId, mut revocation: Revocation) {
        let Some(hold) = self.holds.get_mut(id) else { return bug("a hold to revoke does not exist") };
        let (record, before) = (hold.record, hold.revocation.take());
        let was_due = before.as_ref().map_or(NEVER, |before| before.due);
        self.revocations = self.revocations.saturating_add(usize::from(before.is_none()));
        let was_to_return = before.as_ref().is_some_and(|before| before.was_to_return);
        if let Some(before) = before {
            revocation.was_to_return |= before.was_to_return;
            revocation.grant = revocation.grant.or(before.grant);
            revocation.all_holds |= before.all_holds;
            revocation.grace_end = revocation.grace_end.max(before.grace_end);
        }
        let (due, is_to_return) = (revocation.due, revocation.was_to_return);
        hold.revocation = Some(Box::new(revocation));
        self.note_to_return(record, was_to_return, is_to_return);
        self.reschedule(record, Work::Revoke(id.slot()), was_due, due);
    }

    /// Takes the revocation from a hold. The caller drops the hold if nothing else is kept for it.
    pub(super) fn take_revocation(&mut self, id: HoldId) -> Option<Box<Revocation>> {
        let hold = self.holds.get_mut(id)?;
        let (record, revocation) = (hold.record, hold.revocation.take()?);
        debug_assert!(self.revocations > 0, "a revocation was not counted");
        self.revocations = self.revocations.saturating_sub(1);
        self.reschedule(record, Work::Revoke(id.slot()), revocation.due, NEVER);
        self.note_to_return(record, revocation.was_to_return, false);
        Some(revocation)
    }

    /// Updates the number of shares of a lock that are to be returned for their grace periods. All waiters have waited for the last.
    fn note_to_return(&mut self, record: RecordId, was: bool, is: bool) {
        let Some(shares) = self.shares_mut(record).filter(|_| was != is) else { return };
        debug_assert!(is || shares.to_return > 0, "a share to return was not counted");
        shares.to_return = if is { shares.to_return.saturating_add(1) } else { shares.to_return.saturating_sub(1) };
        if shares.to_return == 0 {
            self.review_soon(record, Cause::Other);
        }
    }

    /// Removes a revocation that is carried out now or is cancelled. Returns it.
    pub fn remove_revocation(&mut self, id: HoldId) -> Option<Box<Revocation>> {
        let removed = self.take_revocation(id);
        self.drop_hold_if_unused(id);
        removed
    }

    /// Removes the revocation of a lock or a share that is granted again.
    pub fn cancel_revocation(&mut self, hold_key: HoldKey<'_>) {
        if let Some(id) = self.find_hold(hold_key) {
            self.remove_revocation(id);
        }
    }

    /// Schedules an immediate attempt of a revocation.
    pub fn revoke_soon(&mut self, id: HoldId) {
        self.postpone_revocation(id, AT_ONCE);
    }

    /// Postpones a revocation until `time`.
    pub fn postpone_revocation(&mut self, id: HoldId, time: UnixMs) {
        debug_assert!(time < NEVER, "a revocation is postponed forever");
        let Some(hold) = self.holds.get_mut(id) else { return };
        let record = hold.record;
        if let Some(revocation) = hold.revocation.as_mut() {
            let before = std::mem::replace(&mut revocation.due, time);
            self.reschedule(record, Work::Revoke(id.slot()), before, time);
        }
    }
}

#[cfg(test)]
mod tests;
