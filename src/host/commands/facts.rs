//! The facts about the server on which the decision on a request depends.

use crate::core::{Error, Facts, Handles, Hold, HoldId, HoldKey, Kind, Lease, Limit, UnixMs};
use crate::host::settings::{self, MAX_SESSIONS};
use crate::host::state::{Key, State};
use crate::host::{conditions::suspension, state::pending_replies::pending_id};
use crate::server::{ContextFlags, StringRef};

/// The facts for one request.
pub struct RequestFacts<'a, 'k, 'c> {
    pub key: &'a Key<'k, 'c>,
    pub caller: &'a [u8],
    /// The channel on which the request waits for a message, if it does.
    pub channel: Option<StringRef<'a>>,
    /// The handles of the lock, after its overdue work was processed.
    pub handles: Option<Handles>,
}

impl Facts for RequestFacts<'_, '_, '_> {
    #[inline(always)]
    fn must_wait_for_others(&self) -> bool {
        self.handles.is_some_and(|Handles { record, queue, has_share_sessions, has_share_revocations, .. }| {
            self.key.with_state(|State { locks, .. }| {
                queue.is_some_and(|queue| locks.waiter_count_of(queue) > 0)
                    || (has_share_sessions || has_share_revocations) && locks.has_shares_to_return(record)
            })
        })
    }

    #[inline(always)]
    fn suspends_grants(&self) -> bool {
        suspension::suspends_grants(self.key.server())
    }

    fn will_regain(&self, now: UnixMs) -> bool {
        let record = self.handles.map(|handles| handles.record);
        record.is_some_and(|record| self.key.with_state(|state| state.locks.will_regain(record, self.caller, now)))
    }

    #[inline(always)]
    fn check_lease_change(&self) -> Result<(), Error> {
        suspension::check_lease_change(self.key.server())
    }

    #[inline(always)]
    fn longest_lease(&self) -> Option<Lease> {
        settings::longest_lease()
    }

    /// A replica, even if it accepts writes of clients, never grants a lock to a waiter.
    fn can_wait(&self) -> bool {
        let obstacles = if self.channel.is_some() { ContextFlags::empty() } else { ContextFlags::DENY_BLOCKING };
        !self.key.ctx().flags().intersects(obstacles | ContextFlags::REPLICA)
    }

    #[cold]
    fn may_join(&self, kind: Kind, most: Limit) -> bool {
        let Some(queue) = self.handles.and_then(|handles| handles.queue) else { return true };
        let (db, name) = (self.key.ctx().db(), self.key.name().bytes());
        self.key.with_state(|State { locks, .. }| {
            most.has_capacity(locks.waiter_count_of(queue)) || locks.has_place(db, name, kind, self.caller)
        })
    }

    /// A request adds no session if the caller has one, or waits for one.
    fn has_session_capacity(&self, kind: Kind) -> bool {
        let (db, name) = (self.key.ctx().db(), self.key.name().bytes());
        self.key.with_state(|State { locks, pending, .. }| {
            if locks.session_count().saturating_add(pending.session_waiters()) < settings::limit(&MAX_SESSIONS) {
                return true;
            }
            let is_own = |hold: &Hold| hold.kind == kind && *hold.owner == *self.caller;
            let has_session = |id: HoldId| locks.hold(id).is_some_and(is_own);
            let waits_for_session = |id| pending.get(id).is_some_and(|entry| entry.session.is_some());
            locks.find_session(HoldKey::of(db, name, kind, self.caller)).is_some_and(has_session)
                || locks
                    .request_of(db, name, self.caller)
                    .map(|it| pending_id(it.waiter))
                    .is_some_and(waits_for_session)
        })
    }
}
