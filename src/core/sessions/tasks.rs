//! What is due for sessions: renewals, and checks whether their locks are still held.

use std::mem;

use super::{SessionId, Sessions};
use crate::core::UnixMs;
use crate::core::timer_queue::NEVER;

/// A task that is due for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionTask {
    /// Renew the lease. The session has no next renewal until one is scheduled.
    Renew(SessionId),
    /// Check whether the lock is still held.
    Check(SessionId),
}

impl Sessions {
    /// Schedules a check at once, because somebody else has set or removed the lease. If the lock goes before that, it
    /// was taken away.
    pub fn lease_changed(&mut self, id: SessionId) {
        self.check_soon(id, NEVER);
    }

    /// Schedules a check at once, because the lease has ended by itself: the session takes the lock back.
    pub fn lease_expired(&mut self, id: SessionId) {
        self.check_soon(id, UnixMs::MIN);
    }

    fn check_soon(&mut self, id: SessionId, lease_end: UnixMs) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.lease_end = lease_end;
        }
        self.schedule_renewal_at(id, UnixMs::MIN);
    }

    /// Begins a check of all sessions, one after the other.
    pub fn check_all(&mut self) {
        self.checks.begin();
    }

    /// Returns the time when the next task is due.
    pub fn next_due(&self) -> Option<UnixMs> {
        if self.checks.has_more()
            || self.has_closed_connections()
            || !self.ended.is_empty()
            || !self.doubtful.is_empty()
        {
            Some(UnixMs::MIN)
        } else {
            self.renewals.earliest()
        }
    }

    /// Removes and returns a task that is due at `now`.
    pub fn pop_due(&mut self, now: UnixMs) -> Option<SessionTask> {
        self.has_checked = !self.has_checked;
        if self.has_checked {
            return self.pop_check().or_else(|| self.pop_renewal(now));
        }
        self.pop_renewal(now).or_else(|| self.pop_check())
    }

    fn pop_check(&mut self) -> Option<SessionTask> {
        self.checks.next(&self.sessions).map(SessionTask::Check)
    }

    fn pop_renewal(&mut self, now: UnixMs) -> Option<SessionTask> {
        let id = self.renewals.pop_due(now)?;
        self.sessions.get_mut(id)?.renew_at = NEVER;
        Some(SessionTask::Renew(id))
    }

    /// Records that a lease was renewed at `now`, or taken back, and schedules the next renewal.
    pub fn renewed(&mut self, id: SessionId, lease_end: Option<UnixMs>, now: UnixMs) {
        self.schedule_renewal(id, now);
        self.set_lease_end(id, lease_end);
    }

    /// Schedules the next renewal after a third of the lease.
    pub fn schedule_renewal(&mut self, id: SessionId, now: UnixMs) {
        if let Some(lease) = self.get(id).map(|session| session.lock.lease) {
            planted!(RenewalTooOften => return self.schedule_renewal_at(id, lease.renewal_retry_after(now)));
            planted!(NoRenewal => return self.schedule_renewal_at(id, lease.end_from(now)));
            self.schedule_renewal_at(id, lease.renewal_after(now));
        }
    }

    /// Schedules the next renewal at `time`.
    pub fn schedule_renewal_at(&mut self, id: SessionId, time: UnixMs) {
        if let Some(session) = self.sessions.get_mut(id) {
            self.renewals.reschedule(id, mem::replace(&mut session.renew_at, time), time);
        }
    }
}
