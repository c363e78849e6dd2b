//! What a token has at the server, and its lease by the local clock.
//!
//! | noun | what it is | ends |
//! |---|---|---|
//! | [`Lock`](crate::Lock) | the description that the program makes | |
//! | [`Hold`] | a token, what it has at the server, and its lease | with the last task that uses it |
//! | [`Ownership`](crate::guard::Ownership) | the duty to undo a hold | with a release, which its drop sends |
//! | [`Guard`](crate::Guard) | a hold that was granted, for the program | with the program's use of it |

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::keeper::RENEWALS;
use crate::request::{FOREVER, GRACE, Request};

/// The number of no connection.
pub(crate) const NO_CONNECTION: u64 = u64::MAX;

/// What a token may have at the server. A number is that of a connection: how many were lost before it.
///
/// | state | a request on n | its reply | a session on n | its reply | what a release does |
/// |---|---|---|---|---|---|
/// | `Idle` | `Asked(n)` | | is refused | | nothing |
/// | `Asked(n)` | `Asked(n)` | `Settled(n)` | is refused | | RELEASE; on another connection again a second later |
/// | `Asked(m)` | `Unknown(n)` | `Settled(m)` | is refused | | RELEASE, and again a second later |
/// | `Settled(m)` | `Asked(n)` | | `Unknown(none)` | | RELEASE |
/// | `Unknown(m)` | `Unknown(n)` | | `Unknown(none)` | `Unknown(n)` | RELEASE, and again a second later |
///
/// A release, a hand-over and a refused request lead to `Idle`. A reply leads from `Asked` to `Unknown` if its connection was lost since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing was sent, or all of it is undone.
    Idle,
    /// A request has no reply. The server executes it before what is sent later on the same connection.
    Asked(u64),
    /// All requests have replies. A session belongs to the connection.
    Settled(u64),
    /// The server may execute a request of a lost connection after commands that are sent later.
    Unknown(u64),
}

impl State {
    /// Returns the state after a request for the lock.
    fn asked(self, on: u64) -> Self {
        match self {
            Self::Idle | Self::Settled(_) => Self::Asked(on),
            Self::Asked(number) if number == on => self,
            Self::Asked(_) | Self::Unknown(_) => Self::Unknown(on),
        }
    }

    /// Returns the state after the reply to a request. If its connection was lost since, the reply may be that of a later one.
    fn replied(self, is_connected: bool) -> Self {
        match self {
            Self::Asked(number) if is_connected => Self::Settled(number),
            Self::Asked(number) => Self::Unknown(number),
            state => state,
        }
    }

    /// Returns the state after a request that continues the session of what is held, none if its release has begun.
    fn session_asked(self) -> Option<Self> {
        matches!(self, Self::Settled(_) | Self::Unknown(_)).then_some(Self::Unknown(NO_CONNECTION))
    }

    /// Returns the state after the reply to this request, unless its release has begun.
    fn session_replied(self, on: u64) -> Self {
        if let Self::Unknown(_) = self { Self::Unknown(on) } else { self }
    }

    /// Returns whether a session belongs to a connection.
    fn is_on(self, connection: u64) -> bool {
        matches!(self, Self::Settled(number) | Self::Unknown(number) if number == connection)
    }

    /// Returns whether no request can be executed after a release whose reply came on a connection.
    pub(crate) fn is_over_after(self, connection: u64) -> bool {
        match self {
            Self::Idle | Self::Settled(_) => true,
            Self::Asked(number) => number == connection,
            Self::Unknown(_) => false,
        }
    }
}

/// A token, which is random and never used again, what it has at the server, and its lease.
pub(crate) struct Hold {
    pub(crate) request: Request,
    pub(crate) token: String,
    status: Mutex<Status>,
    /// Notifies of the loss, and of a change of the state.
    news: Notify,
    /// The keeper has it.
    pub(crate) is_kept: AtomicBool,
}

struct Status {
    state: State,
    /// When the lease ends, and its length.
    end: Instant,
    lease: Duration,
    /// The length that the next renewal sets, and how often it has been changed.
    next_lease: Duration,
    changes: u64,
    /// The grace period of the session, and its end if the connection of the session is lost. Only a new session ends it.
    grace: Duration,
    grace_end: Option<Instant>,
    is_lost: bool,
}

impl Status {
    /// Returns until when the lock is held by the local clock.
    fn end(&self) -> Instant {
        self.grace_end.map_or(self.end, |grace_end| grace_end.min(self.end))
    }
}

/// What a command that is sent at an instant makes of the lease.
pub(crate) struct Term {
    at: Instant,
    pub(crate) lease: Duration,
    changes: u64,
}

impl Hold {
    pub(crate) fn new(request: Request, token: String) -> Self {
        let lease = request.lease.min(FOREVER);
        let status = Status {
            state: State::Idle,
            end: Instant::now() + lease,
            lease,
            next_lease: lease,
            changes: 0,
            grace: lease.min(GRACE),
            grace_end: None,
            is_lost: false,
        };
        Self { request, token, status: Mutex::new(status), news: Notify::new(), is_kept: AtomicBool::new(false) }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        // No code panics between two changes.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.status().state
    }

    /// Sets the state, and returns the earlier one.
    pub(crate) fn set_state(&self, state: State) -> State {
        let before = std::mem::replace(&mut self.status().state, state);
        self.news.notify_waiters();
        before
    }

    /// Waits until its release has begun, or the lock is handed over.
    pub(crate) async fn idle(&self) {
        self.until(|status| status.state == State::Idle).await;
    }

    async fn until(&self, condition: impl Fn(&Status) -> bool) {
        loop {
            let news = self.news.notified();
            if condition(&self.status()) {
                return;
            }
            news.await;
        }
    }

    /// Notes that a request for the lock is about to be sent.
    pub(crate) fn asked(&self, connection: u64) {
        let mut status = self.status();
        status.state = status.state.asked(connection);
    }

    /// Notes the reply to a request, and whether its connection is still open.
    pub(crate) fn replied(&self, is_connected: bool) {
        let mut status = self.status();
        status.state = status.state.replied(is_connected);
    }

    /// Notes that a request for a session is about to be sent for what is held. Returns false if its release has begun.
    pub(crate) fn session_begins(&self) -> bool {
        let mut status = self.status();
        let asked = status.state.session_asked();
        status.state = asked.unwrap_or(status.state);
        asked.is_some()
    }

    /// Notes that the session belongs to a connection, with the grace period for a lease.
    pub(crate) fn session_began(&self, connection: u64, lease: Duration) {
        let mut status = self.status();
        status.state = status.state.session_replied(connection);
        (status.grace, status.grace_end) = (lease.min(GRACE), None);
    }

    /// Begins the grace period if the session belongs to another connection. The server may have noticed the loss a little earlier.
    pub(crate) fn note_cut(&self, connection: u64) {
        let mut status = self.status();
        if self.request.has_session && !status.state.is_on(connection) {
            let end = Instant::now() + status.grace * 9 / 10;
            status.grace_end.get_or_insert(end);
        }
    }

    /// Returns whether its session belongs to another connection.
    pub(crate) fn is_cut(&self, connection: u64) -> bool {
        self.request.has_session && !self.state().is_on(connection)
    }

    /// Returns the end of the lease by the local clock, and the length of the lease.
    pub(crate) fn term(&self) -> (Instant, Duration) {
        let status = self.status();
        (status.end(), status.lease)
    }

    /// Returns when EXTEND is sent: in a session when a report of a renewal is late by half of its time.
    pub(crate) fn renewal_at(&self) -> Instant {
        let status = self.status();
        let (end, lease) = (status.end(), status.lease.min(status.next_lease));
        let left = if self.request.has_reports() { lease / 6 } else { lease * (RENEWALS - 1) / RENEWALS };
        end.checked_sub(left).unwrap_or(end)
    }

    /// Returns when something is to be done for it, if no event comes before.
    pub(crate) fn due_at(&self) -> Instant {
        let end = self.term().0;
        if self.request.is_extended() { end.min(self.renewal_at()) } else { end }
    }

    /// Notes that the lease had a length at an instant.
    pub(crate) fn set_lease(&self, at: Instant, lease: Duration) {
        let mut status = self.status();
        (status.end, status.lease, status.next_lease) = (at + lease, lease, lease);
    }

    /// Notes that the server renews the session each third of the lease, after a report of it and a read that was sent then.
    pub(crate) fn renewed_by_server(&self, term: &Term) {
        let mut status = self.status();
        if status.changes == term.changes {
            status.end = term.at + status.lease.min(term.lease) * 2 / 3;
        }
    }

    /// Returns what a renewal that is sent now makes of the lease.
    pub(crate) fn renewal(&self) -> Term {
        let status = self.status();
        Term { at: Instant::now(), lease: status.next_lease, changes: status.changes }
    }

    /// Changes the length of the lease, for a command that is sent now. Should its reply be lost, the shorter lease counts.
    pub(crate) fn change_lease(&self, lease: Duration) -> Term {
        let (mut status, at) = (self.status(), Instant::now());
        (status.end, status.next_lease) = (status.end.min(at + lease), lease);
        status.changes += 1;
        Term { at, lease, changes: status.changes }
    }

    /// Notes that a command has set the lease. Returns false if the length of the lease was changed after it was sent.
    pub(crate) fn renewed(&self, term: &Term) -> bool {
        let mut status = self.status();
        let is_latest = status.changes == term.changes;
        if is_latest {
            (status.end, status.lease) = (status.end.max(term.at + term.lease), term.lease);
        }
        is_latest
    }

    /// Notes that a command has failed, which leaves the length of the lease.
    pub(crate) fn not_renewed(&self, term: &Term) {
        let mut status = self.status();
        if status.changes == term.changes {
            status.next_lease = status.lease;
            status.changes += 1;
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        let status = self.status();
        status.is_lost || Instant::now() >= status.end()
    }

    /// Reports the loss.
    pub(crate) fn lose(&self) {
        let was_lost = std::mem::replace(&mut self.status().is_lost, true);
        if !was_lost {
            tracing::debug!(lock = self.request.name(), "lost");
            self.news.notify_waiters();
        }
    }

    /// Waits until the loss is reported.
    pub(crate) async fn lost(&self) {
        self.until(|status| status.is_lost).await;
    }

    /// Marks it as kept. Returns false if it was.
    pub(crate) fn begin_to_keep(&self) -> bool {
        !self.is_kept.swap(true, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::NO_CONNECTION;
    use super::State::{Asked, Idle, Settled, Unknown};

    #[test]
    fn requests_and_replies_follow_the_table() {
        let rows = [
            (Idle, Asked(7), Idle, None, Idle),
            (Asked(7), Asked(7), Settled(7), None, Asked(7)),
            (Asked(6), Unknown(7), Settled(6), None, Asked(6)),
            (Settled(6), Asked(7), Settled(6), Some(Unknown(NO_CONNECTION)), Settled(6)),
            (Unknown(6), Unknown(7), Unknown(6), Some(Unknown(NO_CONNECTION)), Unknown(7)),
        ];
        for (state, asked, replied, session_asked, session_replied) in rows {
            assert_eq!((state.asked(7), state.replied(true)), (asked, replied), "{state:?}");
            let session = (state.session_asked(), state.session_replied(7));
            assert_eq!(session, (session_asked, session_replied), "{state:?}");
        }
    }

    #[test]
    fn only_a_lost_connection_needs_a_second_release() {
        assert!([Idle, Asked(7), Settled(6)].iter().all(|state| state.is_over_after(7)));
        assert!([Asked(6), Unknown(7), Asked(6).replied(false)].iter().all(|state| !state.is_over_after(7)));
    }
}
