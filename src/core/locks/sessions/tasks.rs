//! The due tasks of sessions: renewals, and checks whether their locks are still held.

use crate::core::locks::lease_class::Class;
use crate::core::locks::record::{HoldId, SessionLeaseEnd};
use crate::core::locks::{HoldKey, Locks};
use crate::core::tables::NEVER;
use crate::core::{OrBug, UnixMs};

/// A task that is due for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTask {
    /// Renew the lease. The session has no next renewal until one is scheduled.
    Renew(HoldId),
    /// Check whether the lock is still held.
    Check(HoldId),
}

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
        self.schedule_renewal_at(id, UnixMs::MIN);
    }

    /// Begins a check of all sessions, one after the other.
    pub fn check_all(&mut self) {
        self.checks.begin();
    }

    /// Returns the time when the next task of a session is due. [`UnixMs::MIN`] means now.
    pub(in crate::core::locks) fn next_session_task(&self) -> Option<UnixMs> {
        let has_shares_due = !(self.ended.is_empty() && self.rechecks.is_empty() && self.returns.is_empty());
        let is_due = has_shares_due || self.checks.has_more() || self.has_closed_connections();
        if is_due { Some(UnixMs::MIN) } else { self.renewals.earliest() }
    }

    /// Removes and returns a task that is due at `now`, of three kinds in turn: a check, a renewal, or a return if
    /// `returns_more`.
    pub fn pop_session_task(&mut self, now: UnixMs, returns_more: bool) -> Option<SessionTask> {
        const SOURCES: usize = 3;
        for source in (0..SOURCES).cycle().skip(self.next_session_source).take(SOURCES) {
            let task = match source {
                0 => self.checks.next(&self.holds).map(SessionTask::Check),
                1 => self.pop_renewal(now),
                _ if returns_more => self.pop_return(),
                _ => None,
            };
            if task.is_some() {
                self.next_session_source = source.saturating_add(1);
                return task;
            }
        }
        None
    }

    fn pop_renewal(&mut self, now: UnixMs) -> Option<SessionTask> {
        let id = self.renewals.pop_due(now)?;
        let session = self.session_mut(id).or_bug("a session with a renewal does not exist")?;
        debug_assert!(session.renew_at <= now, "a renewal comes early");
        session.renew_at = NEVER;
        Some(SessionTask::Renew(id))
    }

    /// Records that a lease was renewed at `now`, or the lock was taken again, and schedules the next renewal.
    pub fn renewed(&mut self, id: HoldId, lease_end: Option<UnixMs>, now: UnixMs) {
        debug_assert!(lease_end.is_none_or(|end| end > now), "a renewed lease has ended");
        self.schedule_renewal(id, now);
        self.set_lease_end(id, lease_end);
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
            SessionLeaseEnd::Passed => UnixMs::MIN,
        };
        self.schedule_renewal_at(id, time);
    }

    pub fn schedule_renewal_at(&mut self, id: HoldId, time: UnixMs) {
        let session = self.holds.get_mut(id).and_then(|hold| hold.session.as_mut());
        let Some(session) = session else { return };
        let before = (session.class, session.renew_at);
        (session.class, session.renew_at) = (Class::of(session.lease), time);
        self.renewals.reschedule(id, before, (session.class, time));
    }
}
