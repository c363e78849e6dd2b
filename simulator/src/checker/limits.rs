//! The limits of requests and sessions.

use super::lock_model::{LockModel, QueueEntry, Session, Waiting};
use super::recovery::GrantSuspension;
use super::settings::Limits;
use super::spec::{Held, Ms, Who};
use super::{Checker, Name, Running, Verdict};
use crate::request::{Request, Take, Verb, token_of};

impl Limits {
    /// Returns the lease for a queue entry. An entry without a lease gets the longest one.
    pub fn lease_for(&self, queue_entry: &QueueEntry) -> Option<i64> {
        queue_entry.lease().map(|lease| self.cut(lease)).or(self.lease_ms)
    }

    /// Returns whether a session may have got this lease now.
    pub fn may_renew(&self, session: &Session, held: &Held, now: Ms) -> bool {
        let leases = [session.lease, self.cut(session.lease).max(100)];
        held.until.is_some_and(|until| leases.contains(&(until - now)))
    }
}

impl Checker {
    /// Returns the most sessions that the module may count, with those that requests wait for. It may not have noticed the
    /// end of some.
    pub(super) fn most_sessions(&self) -> usize {
        self.sessions(|_| true, |_| true)
    }

    fn sessions(&self, counts: fn(&Session) -> bool, waits: fn(&Waiting) -> bool) -> usize {
        let waiting = |request: &&Waiting| request.session.is_some() && waits(request);
        let of_model = |model: &LockModel| {
            model.sessions.iter().filter(|session| counts(session)).count() + model.requests().filter(waiting).count()
        };
        self.models.values().map(of_model).sum()
    }

    /// Returns whether the session that a request asks for is already counted, for its token or for the request that it
    /// replaces. `None`: it may be.
    pub(super) fn has_session(&self, name: &Name, request: &Request) -> Option<bool> {
        let Verb::Take(take) = request.verb else { return Some(false) };
        let who = Who { form: take.form, name: token_of(request.identity) };
        let Some(model) = self.models.get(name) else { return Some(false) };
        let waits =
            model.place_of(&who.name).and_then(|entry| entry.request.as_ref()).filter(|it| it.session.is_some());
        match (model.session_of(&who), waits) {
            (None, None) => Some(false),
            (Some(session), _) if session.is_open() => Some(true),
            (_, Some(request)) if !request.is_unblocked => Some(true),
            _ => None,
        }
    }

    /// Returns whether a request may be refused, and whether it must be refused, because the queue is longer than it
    /// allows.
    pub(super) fn is_line_too_long(&self, running: &Running) -> (bool, bool) {
        let Verb::Take(Take { max_waiters: Some(most), .. }) = running.request.verb else { return (false, false) };
        let Some(model) = self.models.get(&running.name) else { return (false, false) };
        let (may_be, must_be) = model.is_too_long_for(&running.who(), most);
        // The module may check last whether the client can be blocked.
        (may_be, must_be && running.may_wait())
    }

    /// If there are as many queue entries as allowed, the module may remove a detached one.
    pub(super) fn free_capacity(&mut self) {
        let entries = self.behind.iter().flat_map(|view| view.iter()).map(|lock| lock.entries.len()).sum::<usize>();
        self.may_drop_entries |= entries >= self.limits.waiters;
    }

    /// Returns the number of requests that wait.
    pub(super) fn waiting_count(&self) -> usize {
        self.models.values().map(LockModel::waiting).sum()
    }

    /// Checks that a new session is within the limit.
    pub(super) fn check_sessions(&self, running: &Running) -> Verdict {
        let sessions = self.sessions(Session::is_open, |request| !request.is_unblocked);
        if running.had_session == Some(false) && running.asks_for_session() && sessions > self.limits.sessions {
            return Err(format!("{} makes {sessions} sessions", running.request));
        }
        Ok(())
    }

    /// Checks the numbers in INFO at the end of an event-loop iteration.
    ///
    /// # Errors
    ///
    /// A wrong number.
    pub fn check_counts(&self, suspension: &GrantSuspension, shown: impl Fn(&str) -> usize) -> Verdict {
        let recovery_ms = shown("recovery_ms") as Ms;
        if !suspension.may_show(recovery_ms) {
            return Err(format!("INFO says that grants are suspended for {recovery_ms} ms: {suspension:?}"));
        }
        let notified = |model: &LockModel| model.requests().filter(|request| request.channel.is_some()).count();
        let counts = [
            ("waiters", self.models.values().map(LockModel::still_waiting).sum::<usize>()),
            ("waiters_notified", self.models.values().map(notified).sum()),
            ("contended_locks", self.models.values().filter(|model| model.still_waiting() > 0).count()),
        ];
        for (name, expected) in counts {
            let count = shown(name);
            if count != expected {
                return Err(format!("INFO counts {count} {name}, and there are {expected}"));
            }
        }
        let sessions = shown("sessions");
        let open = self.models.values().flat_map(|model| &model.sessions).filter(|session| session.is_open()).count();
        if sessions < open {
            return Err(format!("INFO counts {sessions} sessions, and there are {open}"));
        }
        Ok(())
    }

    /// Returns whether the module may refuse a new session.
    pub(super) fn may_refuse_session(&self, running: &Running) -> bool {
        // Work that was due for the lock comes first, and may have ended the wait that this request repeats.
        let still_has = self.has_session(&running.name, &running.request);
        let is_repeat = running.had_session == Some(true) && still_has == Some(true);
        !is_repeat && running.asks_for_session() && running.sessions_before >= self.limits.sessions
    }
}

impl Running {
    fn asks_for_session(&self) -> bool {
        matches!(self.request.verb, Verb::Take(take) if take.session)
    }
}
