//! Adds a request to the queue of a lock.

use std::rc::Rc;

use super::messages;
use super::pending_replies::{PendingReply, PendingReplyId, WaitState, pending_id, waiter_id};
use crate::command::WaitOptions;
use crate::core::{Claim, Error, JoinOutcome, JoinRequest, Kind, OrBug, UnixMs, increment};
use crate::host::background::slot_check;
use crate::host::granting::delivery::{self, server_id_of};
use crate::host::settings::{self, MAX_BLOCK_MS, MAX_WAITERS};
use crate::host::state::{self, Key, Locks, State};
use crate::server::{self, StringRef, ValueType};

/// How a request waits.
pub enum Waits {
    /// The client is blocked.
    Blocked,
    /// The client gets a message.
    ForMessage,
    /// It does not wait: the server does not block this client.
    Not,
}

/// Adds the request of this command to the queue, until it gets the lock or times out. It waits for a message on `channel`, if
/// that is given, and otherwise its client is blocked.
///
/// # Errors
///
/// [`Error::QueueFull`] if `lock.max-waiters` requests wait already, or too many with this claim, and
/// [`Error::NoSubscriber`] if the channel has no subscriber.
pub fn wait(
    key: &mut Key<'_, '_>,
    caller: &[u8],
    wait: WaitOptions,
    channel: Option<StringRef<'_>>,
    now: UnixMs,
) -> Result<Waits, Error> {
    server::subscribe::<Locks>();
    if wait.kind == Kind::Shared || key.value_type() == ValueType::SortedSet {
        server::subscribe_to_sorted_sets::<Locks>();
    }
    match channel {
        None => block(key, caller, wait, now),
        Some(channel) => wait_for_message(key, caller, wait, channel, now),
    }
}

/// Blocks the client, and adds the request to the queue.
fn block(key: &mut Key<'_, '_>, caller: &[u8], wait: WaitOptions, now: UnixMs) -> Result<Waits, Error> {
    let client = key.ctx().client_id();
    let session = wait.lease.filter(|_| wait.session);
    let limit = settings::limit(&MAX_WAITERS);
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let id = state::with(|State { waiting, pending, .. }| {
        let has_capacity = waiting.has_capacity(limit) && waiting.has_capacity_for_copy(db, name, wait.kind, caller);
        if has_capacity { pending.insert_blocked(client, session) } else { None }
    })
    .ok_or(Error::QueueFull)?;

    // This comes before it joins the queue: a request that does not wait must not change a queue entry that it would share.
    let handle = key.block(server_id_of(id));
    if handle.is_none() {
        state::with(|state| state.pending.remove(id));
        return Ok(Waits::Not);
    }
    let is_pending = state::with(|state| state.pending.get_mut(id).map(|entry| entry.set_handle(handle)).is_some());
    debug_assert!(is_pending, "the request ended before it joined the queue");
    let joined = join(key, caller, wait, id, limit, now);
    debug_assert!(joined.is_ok(), "the capacity was checked before");
    match joined {
        Ok(joined) => begin_wait(id, joined),
        Err(_) => delivery::end_wait(waiter_id(id), WaitState::Ended),
    }
    Ok(Waits::Blocked)
}

/// Records that a request is in the queue.
fn begin_wait(id: PendingReplyId, joined: JoinOutcome) {
    state::with(|State { pending, stats, .. }| {
        let before = pending.set_wait_state(id, WaitState::Waiting(joined.request));
        debug_assert!(matches!(before, Some(WaitState::Ended)), "the request is in a queue already");
        if joined.rejoined {
            increment(&mut stats.resent);
        }
    });
}

/// Adds the request to the queue. It replaces an earlier request with the same claim and channel.
fn wait_for_message(
    key: &Key<'_, '_>,
    caller: &[u8],
    wait: WaitOptions,
    channel: StringRef<'_>,
    now: UnixMs,
) -> Result<Waits, Error> {
    if !messages::has_subscriber(channel) {
        return Err(Error::NoSubscriber);
    }
    let channel = channel.bytes();
    let client = key.ctx().client_id();
    let replaced = previous_request(key, caller, wait.kind, channel);
    // A repeat without SESSION keeps the session that the earlier request asked for.
    let wanted = |entry: &PendingReply| entry.session.filter(|_| entry.client == client);
    let previous = state::with(|state| state.pending.get(replaced?).and_then(wanted));
    let session = wait.lease.filter(|_| wait.session).or(previous);
    // The lease of the grant is at least that of its session, which is renewed after a third of its lease.
    let wait = WaitOptions { lease: wait.lease.max(session), ..wait };
    // A replacement adds no waiter, so it is accepted even if the limit is exceeded.
    let limit = if replaced.is_some() { usize::MAX } else { settings::limit(&MAX_WAITERS) };
    let (db, name) = (key.ctx().db(), key.name().bytes());
    if replaced.is_none() && !state::with(|state| state.waiting.has_capacity_for_copy(db, name, wait.kind, caller)) {
        return Err(Error::QueueFull);
    }
    let id = state::with(|state| state.pending.insert_pubsub(client, session, channel)).ok_or(Error::QueueFull)?;
    let joined =
        join(key, caller, wait, id, limit, now).inspect_err(|_| state::with(|state| state.pending.remove(id)))?;
    begin_wait(id, joined);
    slot_check::add_waiter(key.name().bytes());
    state::with(|State { waiting, pending, .. }| {
        if let Some(replaced) = replaced {
            let wait_state = pending.get(replaced).map(|entry| entry.wait_state());
            debug_assert!(
                matches!(wait_state, Some(WaitState::Waiting(_))),
                "a queue has a request that does not wait"
            );
            if let Some(WaitState::Waiting(request)) = wait_state {
                let withdrawn = waiting.withdraw_request(request, None);
                debug_assert_eq!(withdrawn, Some(waiter_id(replaced)), "a wait and its request do not agree");
            }
            pending.remove(replaced);
        }
    });
    Ok(Waits::ForMessage)
}

/// Adds a request to the queue.
fn join(
    key: &Key<'_, '_>,
    caller: &[u8],
    wait: WaitOptions,
    id: PendingReplyId,
    limit: usize,
    now: UnixMs,
) -> Result<JoinOutcome, Error> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let deadline = wait.timeout.deadline(now, MAX_BLOCK_MS.get());
    debug_assert!(deadline.is_none_or(|deadline| deadline > now), "the deadline is in the past");
    let claim = Claim { kind: wait.kind, owner: caller.into(), lease: wait.lease, limit: wait.limit };
    let join = JoinRequest { db, key: name, claim, waiter: waiter_id(id), now, deadline };
    state::with(|state| state.waiting.join(join, limit)).ok_or(Error::QueueFull)
}

/// Returns the request with the same claim that waits for a message on the same channel, if there is one. A new request
/// replaces it.
pub fn previous_request(key: &Key<'_, '_>, caller: &[u8], kind: Kind, channel: &[u8]) -> Option<PendingReplyId> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    state::with(|State { waiting, pending, .. }| {
        let is_via_channel = |id: &PendingReplyId| {
            let entry = pending.get(*id).or_bug("a queue has a request that no client waits for");
            let own_channel = entry.and_then(|entry| entry.channel());
            own_channel.is_some_and(|own: &Rc<[u8]>| **own == *channel)
        };
        waiting.waiters_of(db, name, kind, caller).map(pending_id).find(is_via_channel)
    })
}
