//! Notifies waiters of the end of their wait, and revokes grants that reached no client.

use std::num::NonZeroU64;
use std::rc::Rc;

use super::messages::{self, Event, Subject};
use crate::core::{EndReason, EntryId, Grant, NewSession, OrBug, SessionTerms, UnixMs, WaiterId, increment};
use crate::host::state::pending_replies::{PendingReplyId, WaitState, pending_id};
use crate::host::state::{self, Key, Locks, State};
use crate::host::{keys::lock_handles::hold_key_of, settings};
use crate::server::{self, BlockedClientId, Server, StringRef};

/// Returns the server's number for a blocked client.
pub fn server_id_of(id: PendingReplyId) -> BlockedClientId {
    debug_assert!(id.to_bits() != 0, "the handle of a waiter is never 0");
    BlockedClientId(NonZeroU64::new(id.to_bits()).unwrap_or(NonZeroU64::MIN))
}

/// Returns the blocked client for the server's number.
pub fn pending_id_of(client: BlockedClientId) -> PendingReplyId {
    pending_id(WaiterId(client.0.get()))
}

/// Publishes that the lock is to be granted, if the waiter is notified by message. Returns whether the lock can be granted to it.
/// Called before the lock is written. If no client receives the message, no lock is written and none has to be revoked.
pub fn announce(server: &Server, waiter: WaiterId, lease_end: Option<UnixMs>, subject: Subject<'_>) -> bool {
    let found = state::with(server, |state| state.pending.channel_of(pending_id(waiter)));
    let Some((channel, is_closed)) = found else { return true }; // A blocked client.
    let lease_end = lease_end.or_bug("a waiter that is notified by message gets no lease").unwrap_or_default();
    !is_closed && messages::publish(&channel, &messages::message(Event::Granted(lease_end), subject)) > 0
}

/// Ends the wait of an entry whose waiter no message reaches. The entry is kept for the grace period.
pub fn drop_unreachable(server: &Server, entry: EntryId, now: UnixMs) {
    let (keep_until, end) = (settings::kept_until(now), settings::wait_end(EndReason::Disconnected, now));
    state::with(server, |state| {
        let withdrawn = state.locks.withdraw(entry, keep_until, end);
        withdrawn.into_iter().for_each(|waiter| state.pending.remove(pending_id(waiter)));
        increment(&mut state.stats.cancelled);
    });
}

/// Begins the session that the waiter of a grant has asked for, and replies to it if its client is blocked. Called last, after all
/// effects of the command.
pub fn reply_granted(server: &mut Server, grant: Grant, lease_end: Option<UnixMs>, now: UnixMs) {
    let waiter = grant.waiter;
    let delivery = state::with(server, |state| {
        begin_session(state, &grant, now);
        if let Some(session) = state.locks.find_session(grant.hold_key()) {
            state.locks.set_lease_end(session, lease_end);
        }
        if state.pending.remove_pubsub(pending_id(waiter)) {
            state.locks.supersede_delivery(grant.hold_key());
            return None;
        }
        state.locks.begin_delivery(grant).or_bug("the table of deliveries is full")
    });
    if let Some(delivery) = delivery {
        end_wait(server, waiter, WaitState::Granted(delivery));
    }
}

fn begin_session(state: &mut State, grant: &Grant, now: UnixMs) {
    let Some(entry) = state.pending.get(pending_id(grant.waiter)) else { return };
    if let Some(SessionTerms { lease, grace }) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        let (lease, grace) = (settings::cut(lease), grace.map(settings::cut));
        state.locks.attach(NewSession { db, key, kind, owner, holds: 1, lease, grace }, client, now);
    }
}

/// Notifies a waiter whose queue entry was withdrawn: a blocked client by nil, another by message.
pub fn reply_withdrawn(server: &mut Server, waiter: WaiterId, subject: Subject<'_>) {
    state::with(server, |state| increment(&mut state.stats.cancelled));
    end_without_lock(server, waiter, Event::Withdrawn, subject);
}

/// Notifies a waiter that a later request has taken its place: a blocked client by the error REPLACED. Another one gets a message,
/// unless the later request waits on the same channel `channel`.
pub fn reply_replaced(server: &mut Server, waiter: WaiterId, channel: Option<&[u8]>, subject: Subject<'_>) {
    let id = pending_id(waiter);
    let own = state::with(server, |state| state.pending.channel_of(id));
    if own.is_some_and(|(own, _)| Some(&*own) == channel) {
        return state::with(server, |state| state.pending.remove(id));
    }
    end_without_lock(server, waiter, Event::Replaced, subject);
}

/// Ends the wait of a request that has timed out. Its queue entry is kept for the grace period.
pub fn time_out(server: &mut Server, entry: EntryId, now: UnixMs) {
    state::with(server, |state| increment(&mut state.stats.timed_out));
    end_request(server, entry, Event::TimedOut, now);
}

/// Ends the wait of a request that is notified by message, because this server cannot continue it. Also unblocks a client
/// whose wait a panic has ended.
pub fn abort(server: &mut Server, id: PendingReplyId) {
    let found =
        state::with(server, |state| state.pending.get(id).map(|entry| (entry.wait_state(), entry.channel().is_some())));
    match found {
        Some((WaitState::Waiting(request), true)) => {
            state::with(server, |state| increment(&mut state.stats.cancelled));
            // The slot may stay or come back. A client that repeats its request then has its turn again.
            end_request(server, request, Event::Aborted, server::now_ms());
        }
        // The server itself ends the wait of a blocked client, unless a panic has ended it.
        Some((WaitState::Waiting(_), false)) | Some((_, true)) | None => {}
        // Unblocking a client that was unblocked before has no effect.
        Some((_, false)) => server::unblock::<Locks>(server, server_id_of(id)),
    }
}

/// Ends the wait of an entry and notifies its waiter. The entry is kept for the grace period.
fn end_request(server: &mut Server, entry: EntryId, event: Event, now: UnixMs) {
    let (keep_until, end) = (settings::kept_until(now), settings::wait_end(event.reason(), now));
    let ended = state::with(server, |State { locks, .. }| {
        let (queue, claim) = locks.origin_of(entry).or_bug("a request that ends is in no queue")?;
        let (db, key, owner) = (queue.db(), Rc::clone(&queue.key), claim.owner.clone());
        Some((locks.withdraw(entry, keep_until, end)?, db, key, owner))
    });
    let Some((waiter, db, key, owner)) = ended else { return };
    end_without_lock(server, waiter, event, Subject { db, key: &key, owner: &owner });
}

/// Notifies a waiter, which is in no queue any more, that it does not get the lock.
fn end_without_lock(server: &mut Server, waiter: WaiterId, event: Event, subject: Subject<'_>) {
    let id = pending_id(waiter);
    let Some((channel, is_closed)) = state::with(server, |state| state.pending.channel_of(id)) else {
        return end_wait(server, waiter, if event == Event::Replaced { WaitState::Replaced } else { WaitState::Ended });
    };
    state::with(server, |state| state.pending.remove(id));
    if !is_closed {
        messages::publish_end(server, &channel, event, subject);
    }
}

/// Ends the wait of a blocked client, which is in no queue any more. The server then asks for the reply, which depends on
/// `wait_state`. Called last, after all effects of the command, because the server may call back before this returns.
pub fn end_wait(server: &mut Server, waiter: WaiterId, wait_state: WaitState) {
    let id = pending_id(waiter);
    let before = state::with(server, |state| state.pending.set_wait_state(id, wait_state));
    debug_assert!(matches!(before, Some(WaitState::Waiting(_))), "a wait ends once");
    server::unblock::<Locks>(server, server_id_of(id));
}

/// Records that a reply notifies the holder that it holds the lock. A holder that may have been notified keeps its lock.
pub fn mark_holder_notified(key: &Key<'_, '_>, holder: StringRef<'_>) {
    if key.with_state(|state| state.locks.has_deliveries()) {
        let hold_key = hold_key_of(key, holder.bytes());
        key.with_state(|state| state.locks.mark_holder_notified(hold_key));
    }
}

/// Removes a request from its queue, if it still waits. Its queue entry is kept for the grace period.
pub fn withdraw_request(server: &Server, id: PendingReplyId) {
    let now = server::now_ms();
    let (keep_until, end) = (settings::kept_until(now), settings::wait_end(EndReason::Disconnected, now));
    state::with(server, |state| {
        let Some(WaitState::Waiting(entry)) = state.pending.get(id).map(|entry| entry.wait_state()) else { return };
        state.pending.set_wait_state(id, WaitState::Ended);
        let withdrawn = state.locks.withdraw(entry, keep_until, end);
        debug_assert_eq!(withdrawn.map(pending_id), Some(id), "a request that waits is in a queue");
        increment(&mut state.stats.cancelled);
    });
}

/// Finishes the delivery of a grant to a client, if it has one.
pub fn finish_delivery(server: &Server, id: PendingReplyId, is_notified: bool) {
    state::with(server, |State { pending, locks, .. }| {
        let Some(entry) = pending.get(id) else { return };
        let (WaitState::Granted(delivery), client) = (entry.wait_state(), entry.client) else { return };
        pending.set_wait_state(id, WaitState::Ended);
        locks.finish_delivery(delivery, client, is_notified);
    });
}
