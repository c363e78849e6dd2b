//! How those who wait are told: of a grant, of the end of their wait. And what becomes of a grant that nobody was told of.

use std::mem;
use std::num::NonZeroU64;
use std::rc::Rc;

use super::clients::{BlockedId, Stage, id_of};
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
pub fn id_of_ticket(ticket: Ticket) -> BlockedId {
    id_of(WaiterId(ticket.0.get()))
}

/// Whether the lock shall belong to one of the connections that wait for this grant.
pub fn asks_for_session(grant: &Grant) -> bool {
    state::with(|State { blocked, .. }| {
        let find = |waiter: &WaiterId| blocked.get(id_of(*waiter));
        grant.waiters.iter().filter_map(find).any(|entry| entry.session.is_some())
    })
}

/// Tells every connection of a grant that the lock is theirs, and makes those its session that asked for it. To be
/// called last, after all effects of the command.
pub fn answer_grant(mut grant: Grant, lease_end: Option<UnixMs>, now: UnixMs) {
    let waiters = mem::take(&mut grant.waiters);
    let granting = state::with(|state| {
        waiters.iter().for_each(|waiter| begin_session(state, &grant, *waiter, now));
        if let Some(session) = state.sessions.find(grant.db, &grant.key) {
            state.sessions.set_lease_end(session, lease_end);
        }
        state.blocked.open_grant(grant, waiters.len())
    });
    let Some(granting) = granting else { return };
    for waiter in waiters {
        answer(waiter, Stage::Granted(granting));
    }
}

fn begin_session(state: &mut State, grant: &Grant, waiter: WaiterId, now: UnixMs) {
    let Some(entry) = state.blocked.get(id_of(waiter)) else { return };
    if let Some(lease) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        state.sessions.attach(SessionLock { db, key, kind, owner, holds: 1, lease }, client, now);
    }
}

/// Answers nil to connections whose place was given up.
pub fn answer_withdrawn(waiters: Vec<WaiterId>) {
    for waiter in waiters {
        state::with(|state| increment(&mut state.stats.cancelled));
        answer(waiter, Stage::Over);
    }
}

/// Ends the wait of a connection that is in no queue any more: the server fetches the reply that belongs to `stage`.
/// To be called last, after all effects of the command: the server may call back at once.
pub fn answer(waiter: WaiterId, stage: Stage) {
    let id = id_of(waiter);
    state::with(|state| state.blocked.set_stage(id, stage));
    server::unblock::<Locks>(ticket_of(id));
}

/// Notes that the present holder is told that it is the holder: who may have been told keeps the lock.
pub fn holder_is_told(key: &Key<'_, '_>) {
    if state::with(|state| state.blocked.has_grants()) {
        let (db, name) = (key.ctx().db(), key.name().bytes());
        state::with(|state| state.blocked.holder_is_told(db, name));
    }
}

/// A client waits no more, by whatever way: takes it out of its queue, where its place is kept for a while.
pub fn leave(id: BlockedId) {
    let keep_until = settings::kept_until(server::now_ms());
    state::with(|state| {
        let Some(Stage::Waiting(request)) = state.blocked.get(id).map(|entry| entry.stage()) else { return };
        state.blocked.set_stage(id, Stage::Over);
        state.waiting.leave(request, keep_until);
        increment(&mut state.stats.cancelled);
    });
}

/// Lets a client go of its grant, if it has one. If nobody was told, the lock is to be taken back; if others were, it does
/// not belong to this one's connection.
pub fn let_go(id: BlockedId, told: bool) {
    state::with(|State { blocked, sessions, revocations, .. }| {
        let Some(entry) = blocked.get(id) else { return };
        let (Stage::Granted(granting), client) = (entry.stage(), entry.client) else { return };
        blocked.set_stage(id, Stage::Over);
        if let Some(grant) = blocked.grant(granting).filter(|_| !told) {
            sessions.detach(grant.db, &grant.key, client);
        }
        if let Some(untold) = blocked.close_grant(granting, told) {
            revocations.add(Revocation::of_grant(untold));
        }
    });
}
