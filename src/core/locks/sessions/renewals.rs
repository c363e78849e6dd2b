//! The renewals of sessions, and the checks whether their locks are still held.

use crate::core::UnixMs;
use crate::core::locks::record::{HoldId, SessionLeaseEnd};
use crate::core::locks::tasks::Work;
use crate::core::locks::{HoldKey, Locks};
use crate::core::tables::{AT_ONCE, NEVER};

impl Locks {
    /// Schedules an immediate renewal after an external write to the lease. If the lock is free by then, it was removed.
    pub fn lease_changed(&mut self, id: HoldId) {
        self.check_soon(id, SessionLeaseEnd::Unknown);
    }

    /// Schedules an immediate renewal, because the lease has expired. The session takes the lock again.
    pub fn lease_expired(&mut self, id: HoldId) {
        self.check_soon(id, SessionLeaseEnd::Passed);
    }

    fn check_soon(&mut self, id: HoldId, lease_end: SessionLeaseEnd) {
        if let Some(session) = self.session_mut(id) {
            session.lease_end = lease_end;
        }
        self.renew_soon(id);
    }

    /// Schedules an immediate renewal.
    pub fn renew_soon(&mut self, id: HoldId) {
        self.schedule_renewal_at(id, AT_ONCE);
    }

    /// Begins a check of all sessions, one after the other.
    pub fn check_all(&mut self) {
        self.checks.begin();
    }

    /// Records that a lease was renewed at `now`, or the lock was taken again, and schedules the next renewal.
    pub fn renewed(&mut self, id: HoldId, lease_end: Option<UnixMs>, now: UnixMs) {
        debug_assert!(lease_end.is_none_or(|end| end > now), "a renewed lease has ended");
        self.schedule_renewal(id, now);
        self.set_lease_end(id, lease_end);
        self.keep_return(id);
    }

    /// Continues a return of shares that was to continue with the renewal of this session.
    pub(super) fn keep_return(&mut self, id: HoldId) {
        let record = self.hold(id).filter(|hold| self.is_to_return(hold.record, hold.share())).map(|hold| hold.record);
        record.into_iter().for_each(|record| self.return_in_turn(record));
    }

    /// Schedules the next renewal after a third of the lease.
    pub fn schedule_renewal(&mut self, id: HoldId, now: UnixMs) {
        if let Some(lease) = self.session(id).map(|session| session.lease) {
            self.schedule_renewal_at(id, lease.renewal_after(now));
        }
    }

    /// Schedules the next renewal of a session that has none, because the task that was popped has not renewed it.
    pub fn keep_renewal(&mut self, hold_key: HoldKey<'_>, now: UnixMs) {
        let Some(id) = self.find_session(hold_key) else { return };
        let Some(session) = self.session(id).filter(|session| session.renew_at == NEVER) else { return };
        let (lease, latest) = (session.lease, session.lease.renewal_after(now));
        let time = match session.lease_end {
            SessionLeaseEnd::Unknown | SessionLeaseEnd::Never => latest,
            SessionLeaseEnd::At(end) => lease.renewal_before(end).min(latest),
            SessionLeaseEnd::Passed => AT_ONCE,
        };
        self.schedule_renewal_at(id, time);
    }

    /// Schedules the next renewal, or none if `time` is `NEVER`.
    pub fn schedule_renewal_at(&mut self, id: HoldId, time: UnixMs) {
        let Some(hold) = self.holds.get_mut(id) else { return };
        let record = hold.record;
        if let Some(session) = hold.session.as_deref_mut() {
            // A time in the past, before 1970, is now.
            let time = if time < 0 { AT_ONCE } else { time };
            let before = std::mem::replace(&mut session.renew_at, time);
            self.reschedule(record, Work::Renew(id.slot()), before, time);
        }
    }
}
