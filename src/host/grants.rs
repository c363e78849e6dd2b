//! How waiting clients are answered, and what happens to a grant that no client was told of.

use std::mem;
use std::num::NonZeroU64;
use std::rc::Rc;

use super::clients::{BlockedId, WaitState, blocked_id};
use super::settings;
use super::state::{self, Key, Locks, State};
use crate::core::{Grant, Revocation, SessionLock, UnixMs, WaiterId, increment};
use crate::server::{self, BlockedClientId};

/// Returns the server's number for a blocked client.
pub fn server_id_of(id: BlockedId) -> BlockedClientId {
    // A handle is never 0.
    BlockedClientId(NonZeroU64::new(id.to_bits()).unwrap_or(NonZeroU64::MIN))
}

/// Returns the blocked client for the server's number.
pub fn blocked_id_of(client: BlockedClientId) -> BlockedId {
    blocked_id(WaiterId(client.0.get()))
}

/// Returns whether a client that waits for this grant asked for a session.
pub fn asks_for_session(grant: &Grant) -> bool {
    state::with(|State { blocked, .. }| {
        let find = |waiter: &WaiterId| blocked.get(blocked_id(*waiter));
        grant.waiters.iter().filter_map(find).any(|entry| entry.session.is_some())
    })
}

/// Answers the clients of a grant, and begins a session with those that asked for one.
///
/// It is called last, after all effects of the command.
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
    planted!(OneCopyHears => if let Some(&one) = waiters.first() {
        return end_wait(one, WaitState::Granted(delivery));
    });
    for waiter in waiters {
        end_wait(waiter, WaitState::Granted(delivery));
    }
}

fn begin_session(state: &mut State, grant: &Grant, waiter: WaiterId, now: UnixMs) {
    planted!(NobodyOwns => return);
    planted!(OneCopyOwns => if state.sessions.find(grant.db, &grant.key).is_some() { return });
    let Some(entry) = state.blocked.get(blocked_id(waiter)) else { return };
    if let Some(lease) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        state.sessions.attach(SessionLock { db, key, kind, owner, holds: 1, lease }, client, now);
    }
}

/// Replies with nil to clients whose place was given up.
pub fn reply_withdrawn(waiters: Vec<WaiterId>) {
    for waiter in waiters {
        state::with(|state| increment(&mut state.stats.cancelled));
        end_wait(waiter, WaitState::Over);
    }
}

/// Ends the wait of a client that is in no queue any more. The server then asks for the reply, which depends on
/// `wait_state`.
///
/// It is called last, after all effects of the command, because the server may call back at once.
pub fn end_wait(waiter: WaiterId, wait_state: WaitState) {
    let id = blocked_id(waiter);
    state::with(|state| state.blocked.set_wait_state(id, wait_state));
    server::unblock::<Locks>(server_id_of(id));
}

/// Records that the holder is told that it holds the lock. A holder that may have been told keeps its lock.
pub fn mark_holder_told(key: &Key<'_, '_>) {
    if state::with(|state| state.blocked.has_deliveries()) {
        planted!(ToldElsewhereIsForgotten => return);
        let (db, name) = (key.ctx().db(), key.name().bytes());
        state::with(|state| state.blocked.mark_holder_told(db, name));
    }
}

/// Removes a client from its queue, if it still waits. Its place is kept for the grace time.
pub fn leave(id: BlockedId) {
    planted!(GoneStaysInLine => return);
    let keep_until = settings::kept_until(server::now_ms());
    state::with(|state| {
        let Some(WaitState::Waiting(request)) = state.blocked.get(id).map(|entry| entry.wait_state()) else { return };
        state.blocked.set_wait_state(id, WaitState::Over);
        state.waiting.leave(request, keep_until);
        increment(&mut state.stats.cancelled);
    });
}

/// Finishes the delivery of a grant to a client, if it has one.
///
/// If no client was told, the lock is revoked. If others were, the lock does not belong to this client's connection.
pub fn finish_delivery(id: BlockedId, told: bool) {
    state::with(|State { blocked, sessions, revocations, .. }| {
        let Some(entry) = blocked.get(id) else { return };
        let (WaitState::Granted(delivery), client) = (entry.wait_state(), entry.client) else { return };
        blocked.set_wait_state(id, WaitState::Over);
        if let Some(grant) = blocked.grant(delivery).filter(|_| !told && !planted!(UntoldStaysInSession)) {
            sessions.detach(grant.db, &grant.key, client);
        }
        if let Some(untold) = blocked.finish_delivery(delivery, told) {
            planted!(UntoldIsTold => return);
            revocations.add(Revocation::of_grant(untold));
        }
    });
}
