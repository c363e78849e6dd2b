//! Adds a request to the queue of a lock.

use std::rc::Rc;

use super::messages;
use super::pending_replies::{PendingReply, PendingReplyId, WaitState, pending_id, waiter_id};
use crate::core::{
    BlockTimeout, Claim, Error, JoinOutcome, JoinRequest, Kind, Lease, OrBug, Request, UnixMs, increment,
};
use crate::host::background::slot_check;
use crate::host::granting::delivery::{self, server_id_of};
use crate::host::settings::{self, MAX_BLOCK_MS, MAX_WAITERS};
use crate::host::state::{self, Key, Locks, State};
use crate::server::{self, Server, StringRef, ValueType};

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
    request: &Request,
    timeout: BlockTimeout,
    channel: Option<StringRef<'_>>,
    now: UnixMs,
) -> Result<Waits, Error> {
    let Some(kind) = request.kind().or_bug("a request that takes no lock waits for one") else {
        return Ok(Waits::Not);
    };
    server::subscribe::<Locks>();
    if kind == Kind::Shared || key.value_type() == ValueType::SortedSet {
        server::subscribe_to_sorted_sets::<Locks>();
    }
    let claim = Claim { kind, owner: caller.into(), lease: request.lease, limit: request.limit() };
    let session = request.session().map(|(_, lease)| lease);
    let deadline = timeout.deadline(now, MAX_BLOCK_MS.get());
    debug_assert!(deadline.is_none_or(|deadline| deadline > now), "the deadline is in the past");
    match channel {
        None => block(key, claim, session, deadline, now),
        Some(channel) => wait_for_message(key, claim, session, deadline, channel, now),
    }
}

/// Blocks the client, and adds the request to the queue.
fn block(
    key: &mut Key<'_, '_>,
    claim: Claim,
    session: Option<Lease>,
    deadline: Option<UnixMs>,
    now: UnixMs,
) -> Result<Waits, Error> {
    let client = key.ctx().client_id();
    let limit = settings::limit(&MAX_WAITERS);
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let id = key
        .with_state(|State { waiting, pending, .. }| {
            let has_capacity =
                waiting.has_capacity(limit) && waiting.has_capacity_for_copy(db, name, claim.kind, &claim.owner);
            if has_capacity { pending.insert_blocked(client, session) } else { None }
        })
        .ok_or(Error::QueueFull)?;

    // This comes before it joins the queue: a request that does not wait must not change a queue entry that it would share.
    let handle = key.block(server_id_of(id));
    if handle.is_none() {
        key.with_state(|state| state.pending.remove(id));
        return Ok(Waits::Not);
    }
    let is_pending = key.with_state(|state| state.pending.get_mut(id).map(|entry| entry.set_handle(handle)).is_some());
    debug_assert!(is_pending, "the request ended before it joined the queue");
    let joined = join(key, claim, id, limit, deadline, now);
    debug_assert!(joined.is_ok(), "the capacity was checked before");
    match joined {
        Ok(joined) => begin_wait(key.server(), id, joined),
        Err(_) => delivery::end_wait(key.server_mut(), waiter_id(id), WaitState::Ended),
    }
    Ok(Waits::Blocked)
}

/// Records that a request is in the queue.
fn begin_wait(server: &Server, id: PendingReplyId, joined: JoinOutcome) {
    state::with(server, |State { pending, stats, .. }| {
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
    mut claim: Claim,
    session: Option<Lease>,
    deadline: Option<UnixMs>,
    channel: StringRef<'_>,
    now: UnixMs,
) -> Result<Waits, Error> {
    if !messages::has_subscriber(channel) {
        return Err(Error::NoSubscriber);
    }
    let channel = channel.bytes();
    let client = key.ctx().client_id();
    let replaced = previous_request(key, &claim, channel);
    // A repeat without SESSION keeps the session that the earlier request asked for.
    let wanted = |entry: &PendingReply| entry.session.filter(|_| entry.client == client);
    let session = session.or(key.with_state(|state| state.pending.get(replaced?).and_then(wanted)));
    // The lease of the grant is at least that of its session, which is renewed after a third of its lease.
    claim.lease = claim.lease.max(session);
    // A replacement adds no waiter, so it is accepted even if the limit is exceeded.
    let limit = if replaced.is_some() { usize::MAX } else { settings::limit(&MAX_WAITERS) };
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let has_capacity =
        || key.with_state(|state| state.waiting.has_capacity_for_copy(db, name, claim.kind, &claim.owner));
    if replaced.is_none() && !has_capacity() {
        return Err(Error::QueueFull);
    }
    let id = key.with_state(|state| state.pending.insert_pubsub(client, session, channel)).ok_or(Error::QueueFull)?;
    let joined =
        join(key, claim, id, limit, deadline, now).inspect_err(|_| key.with_state(|state| state.pending.remove(id)))?;
    begin_wait(key.server(), id, joined);
    slot_check::add_waiter(key.server(), key.name().bytes());
    key.with_state(|State { waiting, pending, .. }| {
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
    claim: Claim,
    id: PendingReplyId,
    limit: usize,
    deadline: Option<UnixMs>,
    now: UnixMs,
) -> Result<JoinOutcome, Error> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    let join = JoinRequest { db, key: name, claim, waiter: waiter_id(id), now, deadline };
    key.with_state(|state| state.waiting.join(join, limit)).ok_or(Error::QueueFull)
}

/// Returns the request with the same claim that waits for a message on the same channel, if there is one. A new request
/// replaces it.
fn previous_request(key: &Key<'_, '_>, claim: &Claim, channel: &[u8]) -> Option<PendingReplyId> {
    let (db, name) = (key.ctx().db(), key.name().bytes());
    key.with_state(|State { waiting, pending, .. }| {
        let is_via_channel = |id: &PendingReplyId| {
            let entry = pending.get(*id).or_bug("a queue has a request that no client waits for");
            let own_channel = entry.and_then(|entry| entry.channel());
            own_channel.is_some_and(|own: &Rc<[u8]>| **own == *channel)
        };
        waiting.waiters_of(db, name, claim.kind, &claim.owner).map(pending_id).find(is_via_channel)
    })
}
