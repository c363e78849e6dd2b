//! The facts about the server on which the decision on a request depends.

use crate::core::limits::MAX_CONNECTIONS;
use crate::core::{ClientId, Error, Facts, Hold, HoldId, HoldKey, Kind, Lease, Limit, OrBug, WaiterId};
use crate::host::settings::{self, MAX_SESSIONS};
use crate::host::state::{Key, State};
use crate::host::{conditions::suspension, keys::lock_handles::LockHandles, state::pending_replies::pending_id};
use crate::server::{ContextFlags, StringRef};

/// The facts for one request.
pub struct RequestFacts<'a, 'k, 'c> {
    pub key: &'a Key<'k, 'c>,
    pub caller: &'a [u8],
    /// The channel on which the request waits for a message, if it does.
    pub channel: Option<StringRef<'a>>,
    /// The handles of the lock, after its overdue work was processed.
    pub handles: Option<LockHandles>,
}

impl Facts for RequestFacts<'_, '_, '_> {
    #[inline(always)]
    fn has_waiter(&self) -> bool {
        let queue = self.handles.and_then(|handles| handles.queue);
        queue.is_some_and(|queue| self.key.with_state(|state| state.locks.waiter_count_of(queue) > 0))
    }

    #[inline(always)]
    fn suspends_grants(&self) -> bool {
        suspension::suspends_grants(self.key.server())
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

    /// A connection is counted once, in its session or while it waits for it. A request that replaces an earlier one, which waits
    /// for a message on the same channel, adds none.
    fn has_session_capacity(&self, kind: Kind, waits: bool) -> bool {
        let limit = settings::limit(&MAX_SESSIONS);
        let (db, name, client) = (self.key.ctx().db(), self.key.name().bytes(), self.key.ctx().client_id());
        self.key.with_state(|State { locks, pending, .. }| {
            let is_same = |hold: &Hold| hold.kind == kind && *hold.owner == *self.caller;
            let is_known = |id: &HoldId| locks.hold(*id).is_some_and(is_same);
            let known = locks.find_session(HoldKey::of(db, name, kind, self.caller)).filter(is_known);
            let connections = || known.into_iter().flat_map(|id| locks.clients(id));
            let has_room = locks.pairs().saturating_add(pending.session_waiters()) < limit;
            if has_room && connections().count() < MAX_CONNECTIONS {
                return true;
            }
            let channel = self.channel.filter(|_| waits).map(StringRef::bytes);
            let asked = |waiter: WaiterId| {
                let entry = pending.get(pending_id(waiter)).or_bug("a queue has a request that no client waits for");
                entry.is_some_and(|entry| entry.asks_for_session(client, channel))
            };
            let is_own = |other: ClientId| other == client;
            connections().any(is_own) || locks.waiters_of(db, name, kind, self.caller).any(asked)
        })
    }
}
