//! How those who wait are told: of a grant, of the end of their wait. And what becomes of a grant that nobody was told of.

use std::mem;
use std::num::NonZeroU64;
use std::rc::Rc;

use super::clients::{BlockedId, WaitState, blocked_id};
use super::settings;
use super::state::{self, Key, Locks, State};
use crate::core::{Grant, Revocation, SessionLock, UnixMs, WaiterId, increment};
use crate::server::{self, Ticket};

/// The server's handle to a blocked client.
pub fn ticket_of(id: BlockedId) -> Ticket {
    // A handle is never 0.
    Ticket(NonZeroU64::new(id.to_bits()).unwrap_or(NonZeroU64::MIN))
}

/// The blocked client behind the server's handle.
pub fn blocked_id_of(ticket: Ticket) -> BlockedId {
    blocked_id(WaiterId(ticket.0.get()))
}

/// Whether the lock shall belong to one of the connections that wait for this grant.
pub fn asks_for_session(grant: &Grant) -> bool {
    state::with(|State { blocked, .. }| {
        let find = |waiter: &WaiterId| blocked.get(blocked_id(*waiter));
        grant.waiters.iter().filter_map(find).any(|entry| entry.session.is_some())
    })
}

/// Tells every connection of a grant that the lock is theirs, and makes those its session that asked for it. To be
/// called last, after all effects of the command.
pub fn reply_granted(mut grant: Grant, lease_end: Option<UnixMs>, now: UnixMs) {
    let waiters = mem::take(&mut grant.waiters);
    let delivery = state::with(|state| {
        waiters.iter().for_each(|waiter| begin_session(state, &grant, *waiter, now));
        if let Some(session) = state.sessions.find(grant.db, &grant.key) {
            state.sessions.set_lease_end(session, lease_end);
        }
        state.blocked.begin_delivery(grant, waiters.len())
    });
    let Some(delivery) = delivery else { return };
    for waiter in waiters {
        end_wait(waiter, WaitState::Granted(delivery));
    }
}

fn begin_session(state: &mut State, grant: &Grant, waiter: WaiterId, now: UnixMs) {
    let Some(entry) = state.blocked.get(blocked_id(waiter)) else { return };
    if let Some(lease) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        state.sessions.attach(SessionLock { db, key, kind, owner, holds: 1, lease }, client, now);
    }
}

/// Answers nil to connections whose place was given up.
pub fn reply_withdrawn(waiters: Vec<WaiterId>) {
    for waiter in waiters {
        state::with(|state| increment(&mut state.stats.cancelled));
        end_wait(waiter, WaitState::Over);
    }
}

/// Ends the wait of a connection that is in no queue any more: the server fetches the reply that belongs to `wait_state`.
/// To be called last, after all effects of the command: the server may call back at once.
pub fn end_wait(waiter: WaiterId, wait_state: WaitState) {
    let id = blocked_id(waiter);
    state::with(|state| state.blocked.set_wait_state(id, wait_state));
    server::unblock::<Locks>(ticket_of(id));
}

/// Notes that the present holder is told that it is the holder: who may have been told keeps the lock.
pub fn mark_holder_told(key: &Key<'_, '_>) {
    if state::with(|state| state.blocked.has_deliveries()) {
        let (db, name) = (key.ctx().db(), key.name().bytes());
        state::with(|state| state.blocked.mark_holder_told(db, name));
    }
}

/// A client waits no more, by whatever way: takes it out of its queue, where its place is kept for a while.
pub fn leave(id: BlockedId) {
    let keep_until = settings::kept_until(server::now_ms());
    state::with(|state| {
        let Some(WaitState::Waiting(request)) = state.blocked.get(id).map(|entry| entry.wait_state()) else { return };
        state.blocked.set_wait_state(id, WaitState::Over);
        state.waiting.leave(request, keep_until);
        increment(&mut state.stats.cancelled);
    });
}

/// Lets a client go of its grant, if it has one. If nobody was told, the lock is to be taken back; if others were, it does
/// not belong to this one's connection.
pub fn finish_delivery(id: BlockedId, told: bool) {
    state::with(|State { blocked, sessions, revocations, .. }| {
        let Some(entry) = blocked.get(id) else { return };
        let (WaitState::Granted(delivery), client) = (entry.wait_state(), entry.client) else { return };
        blocked.set_wait_state(id, WaitState::Over);
        if let Some(grant) = blocked.grant(delivery).filter(|_| !told) {
            sessions.detach(grant.db, &grant.key, client);
        }
        if let Some(untold) = blocked.finish_delivery(delivery, told) {
            revocations.add(Revocation::of_grant(untold));
        }
    });
}
