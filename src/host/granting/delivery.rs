//! How waiters are told, and what happens to a grant that nobody was told of.

use std::mem;
use std::num::NonZeroU64;
use std::rc::Rc;

use crate::core::{Grant, RequestId, Revocation, SessionLock, UnixMs, WaiterId, increment};
use crate::host::background::alarm;
use crate::host::keys::lock_handles::hold_key_of;
use crate::host::settings;
use crate::host::state::{self, Key, Locks, State};
use crate::host::waiting::messages::{self, Event, Subject};
use crate::host::waiting::pending_replies::{PendingReplyId, WaitState, pending_id};
use crate::server::{self, BlockedClientId, OwnedString, StringRef};

/// Returns the server's number for a blocked client.
pub fn server_id_of(id: PendingReplyId) -> BlockedClientId {
    // A handle is never 0.
    BlockedClientId(NonZeroU64::new(id.to_bits()).unwrap_or(NonZeroU64::MIN))
}

/// Returns the blocked client for the server's number.
pub fn pending_id_of(client: BlockedClientId) -> PendingReplyId {
    pending_id(WaiterId(client.0.get()))
}

/// Returns whether the grant needs a lease, because a copy of the request asked for a session or is told by message.
pub fn needs_lease(grant: &Grant) -> bool {
    state::with(|State { pending, .. }| {
        let mut entries = grant.waiters.iter().filter_map(|request| pending.get(pending_id(request.waiter)));
        entries.any(|entry| entry.session.is_some() || entry.channel().is_some())
    })
}

/// Publishes the messages of a grant, each with the end of the lease, which `lease_end_of` returns. Requests without a
/// subscriber are dropped. Returns whether any request is left, to which the lock can be granted.
///
/// It comes before the lock is written: a grant that no client hears of is not made, and need not be taken back.
pub fn announce(grant: &mut Grant, lease_end_of: impl Fn(&Grant) -> Option<UnixMs>) -> bool {
    if state::with(|state| state.pending.has_messages()) {
        if grant.waiters.len() > 1 {
            // First those without a subscriber: the lease that the messages tell is that of the requests that are left.
            let lease_end = lease_end_of(grant);
            let mut rest = grant.clone();
            rest.retain(|waiter| has_subscriber(waiter) || notify_waiter(grant, waiter, lease_end));
            *grant = rest;
        }
        let lease_end = lease_end_of(grant);
        let waiters = mem::take(&mut grant.waiters);
        grant.waiters = waiters.into_iter().filter(|it| notify_waiter(grant, it.waiter, lease_end)).collect();
    }
    !grant.waiters.is_empty()
}

/// Returns whether a waiter needs no message, or its connection is open and its channel has a subscriber.
fn has_subscriber(waiter: WaiterId) -> bool {
    let found = state::with(|state| state.pending.channel_of(pending_id(waiter)));
    let Some((channel, is_closed)) = found else { return true };
    !is_closed && server::subscribers(OwnedString::new(&channel).as_ref()) > 0
}

/// Tells a waiter of its grant, if it is told by message. Returns whether it is still to be granted the lock.
fn notify_waiter(grant: &Grant, waiter: WaiterId, lease_end: Option<UnixMs>) -> bool {
    let id = pending_id(waiter);
    let Some((channel, is_closed)) = state::with(|state| state.pending.channel_of(id)) else {
        return true;
    };
    let subject = Subject { db: grant.db, key: &grant.key, owner: &grant.claim.owner };
    let is_delivered = !is_closed && messages::publish_granted(&channel, lease_end.unwrap_or_default(), subject);
    if !is_delivered {
        state::with(|state| {
            state.pending.remove(id);
            state.spend(1);
            increment(&mut state.stats.cancelled);
        });
    }
    is_delivered
}

/// Answers the blocked clients of a grant, and begins a session with those that asked for one.
///
/// It is called last, after all effects of the command.
pub fn reply_granted(mut grant: Grant, lease_end: Option<UnixMs>, now: UnixMs) {
    let waiters: Vec<_> = mem::take(&mut grant.waiters).into_iter().map(|request| request.waiter).collect();
    let (blocked, delivery) = state::with(|state| {
        waiters.iter().for_each(|waiter| begin_session(state, &grant, *waiter, now));
        if let Some(session) = state.sessions.find(grant.hold_key()) {
            state.sessions.set_lease_end(session, lease_end);
        }
        let is_via_pubsub =
            |waiter: &WaiterId| state.pending.get(pending_id(*waiter)).is_some_and(|it| it.channel().is_some());
        let (via_pubsub, blocked): (Vec<_>, Vec<_>) = waiters.into_iter().partition(is_via_pubsub);
        let clients =
            via_pubsub.iter().filter_map(|waiter| state.pending.get(pending_id(*waiter))).map(|entry| entry.client);
        let pubsub_clients: Vec<_> = clients.collect();
        via_pubsub.iter().for_each(|waiter| state.pending.remove(pending_id(*waiter)));
        if blocked.is_empty() {
            state.pending.supersede_delivery(grant.hold_key());
            return (blocked, None);
        }
        let delivery = state.pending.begin_delivery(grant, blocked.len(), pubsub_clients);
        (blocked, delivery)
    });
    let Some(delivery) = delivery else { return };
    for waiter in blocked {
        end_wait(waiter, WaitState::Granted(delivery));
    }
}

fn begin_session(state: &mut State, grant: &Grant, waiter: WaiterId, now: UnixMs) {
    let Some(entry) = state.pending.get(pending_id(waiter)) else { return };
    if let Some(lease) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        state.sessions.attach(SessionLock { db, key, kind, owner, holds: 1, lease: settings::cut(lease) }, client, now);
    }
}

/// Tells those whose place was given up: blocked clients by nil, the others by message.
pub fn reply_withdrawn(waiters: Vec<WaiterId>, subject: Subject<'_>) {
    for waiter in waiters {
        state::with(|state| increment(&mut state.stats.cancelled));
        end_without_lock(waiter, Event::Withdrawn, subject);
    }
}

/// Ends the wait of a request whose time is up. Its place is kept for the grace time.
pub fn time_out(request: RequestId, now: UnixMs) {
    let keep_until = settings::kept_until(now);
    state::with(|state| increment(&mut state.stats.timed_out));
    end_request(request, Event::TimedOut, keep_until);
}

/// Ends the wait of a request that is told by message, because the server cannot go on with it; or has a blocked client
/// answered whose wait has ended with a panic.
pub fn abort(id: PendingReplyId) {
    let found = state::with(|state| state.pending.get(id).map(|entry| (entry.wait_state(), entry.channel().is_some())));
    match found {
        Some((WaitState::Waiting(request), true)) => {
            state::with(|state| increment(&mut state.stats.cancelled));
            // Who asks again while the slot is still here, or back again, has lost no turn.
            let keep_until = settings::kept_until(server::now_ms());
            end_request(request, Event::Aborted, keep_until);
        }
        // The server itself sees to blocked clients, but for those that a panic has left behind.
        Some((WaitState::Waiting(_), false)) | Some((_, true)) | None => {}
        // Nothing happens if it was unblocked before.
        Some((_, false)) => server::unblock::<Locks>(server_id_of(id)),
    }
}

/// Takes a request out of its queue and tells its waiter.
fn end_request(request: RequestId, event: Event, keep_until: Option<UnixMs>) {
    let Some((waiter, db, key, owner)) = state::with(|State { waiting, .. }| {
        let (queue, claim) = waiting.origin_of(request)?;
        let origin = (queue.db, Rc::clone(&queue.key), claim.owner.clone());
        waiting.withdraw_request(request, keep_until).map(|waiter| (waiter, origin.0, origin.1, origin.2))
    }) else {
        return;
    };
    end_without_lock(waiter, event, Subject { db, key: &key, owner: &owner });
}

/// Tells a waiter that is in no queue any more that it does not get the lock.
fn end_without_lock(waiter: WaiterId, event: Event, subject: Subject<'_>) {
    let id = pending_id(waiter);
    let Some((channel, is_closed)) = state::with(|state| state.pending.channel_of(id)) else {
        return end_wait(waiter, WaitState::Ended);
    };
    state::with(|state| state.pending.remove(id));
    if !is_closed {
        messages::publish_end(&channel, event, subject);
    }
}

/// Ends the wait of a blocked client that is in no queue any more. The server then asks for the reply, which depends on
/// `wait_state`.
///
/// It is called last, after all effects of the command, because the server may call back at once.
pub fn end_wait(waiter: WaiterId, wait_state: WaitState) {
    let id = pending_id(waiter);
    state::with(|state| state.pending.set_wait_state(id, wait_state));
    server::unblock::<Locks>(server_id_of(id));
}

/// Records that the holder is told that it holds the lock. A holder that may have been told keeps its lock.
pub fn mark_holder_notified(key: &Key<'_, '_>, holder: StringRef<'_>) {
    if state::with(|state| state.pending.has_deliveries()) {
        let hold_key = hold_key_of(key, holder.bytes());
        state::with(|state| state.pending.mark_holder_notified(hold_key));
    }
}

/// Removes a request from its queue, if it still waits. Its place is kept for the grace time.
pub fn withdraw_request(id: PendingReplyId) {
    let keep_until = settings::kept_until(server::now_ms());
    let has_withdrawn = state::with(|state| {
        let Some(WaitState::Waiting(request)) = state.pending.get(id).map(|entry| entry.wait_state()) else {
            return false;
        };
        state.pending.set_wait_state(id, WaitState::Ended);
        state.waiting.withdraw_request(request, keep_until);
        increment(&mut state.stats.cancelled);
        true
    });
    if has_withdrawn {
        alarm::set(); // The next in line may have room beside the shares that are held.
    }
}

/// Finishes the delivery of a grant to a client, if it has one.
///
/// If no client was told, the lock is revoked. If others were, the lock does not belong to this client's connection.
pub fn finish_delivery(id: PendingReplyId, is_notified: bool) {
    state::with(|State { pending, sessions, revocations, .. }| {
        let Some(entry) = pending.get(id) else { return };
        let (WaitState::Granted(delivery), client) = (entry.wait_state(), entry.client) else { return };
        pending.set_wait_state(id, WaitState::Ended);
        if let Some(grant) = pending.grant_unknown_to(client, delivery).filter(|_| !is_notified) {
            sessions.detach(grant.hold_key(), client);
        }
        if let Some(unnotified) = pending.finish_delivery(delivery, is_notified) {
            revocations.add(Revocation::of_grant(unnotified));
        }
    });
}
