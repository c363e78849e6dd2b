//! Adds a request to the queue of a lock.

use std::rc::Rc;

use crate::core::{
    BlockTimeout, Claim, EndReason, Error, JoinRequest, Kind, OrBug, Request, SessionTerms, UnixMs, increment,
};
use crate::host::replies::delivery::{self, server_id_of};
use crate::host::settings::{self, MAX_BLOCK_MS, MAX_WAITERS};
use crate::host::state::pending_replies::{PendingReply, PendingReplyId, ReplyVia, WaitState, pending_id, waiter_id};
use crate::host::state::{Key, Locks, State, with_lock};
use crate::server::{self, StringRef, ValueType};

/// The outcome of a request.
pub enum Outcome {
    Integer(i64),
    Nil,
    /// The request is in the queue, and its client is blocked. There is no reply yet.
    Waiting,
    /// The request is in the queue, and its client gets a message.
    WaitsForMessage,
}

/// A request that is to wait.
struct Wait {
    claim: Claim,
    /// The terms of the session, if the request asks for one.
    session: Option<SessionTerms>,
    deadline: Option<UnixMs>,
    now: UnixMs,
}

/// Adds the request of this command to the queue, until it gets the lock or times out. It waits for a message on `channel`, if
/// that is given, and otherwise its client is blocked. The error is [`Error::QueueFull`] if `lock.max-waiters` requests wait
/// already, or too many with this claim, and [`Error::NoSubscriber`] if the channel has no subscriber.
pub fn wait(
    key: &mut Key<'_, '_>,
    caller: &[u8],
    request: &Request,
    timeout: BlockTimeout,
    channel: Option<StringRef<'_>>,
    now: UnixMs,
) -> Result<Outcome, Error> {
    let Some(kind) = request.kind().or_bug("a request that takes no lock waits for one") else {
        return Ok(Outcome::Nil);
    };
    server::subscribe::<Locks>();
    if kind == Kind::Shared || key.value_type() == ValueType::SortedSet {
        server::subscribe_to_sorted_sets::<Locks>();
    }
    let claim = Claim { kind, owner: caller.into(), lease: request.lease, limit: request.limit() };
    let session = request.session().map(|(_, terms)| terms);
    let deadline = timeout.deadline(now, MAX_BLOCK_MS.get());
    debug_assert!(deadline.is_none_or(|deadline| deadline > now), "the deadline is in the past");
    let wait = Wait { claim, session, deadline, now };
    match channel {
        None => block(key, wait),
        Some(channel) => wait_for_message(key, wait, channel),
    }
}

/// Blocks the client, and adds the request to the queue. If the server does not block this client, the outcome is nil.
fn block(key: &mut Key<'_, '_>, wait: Wait) -> Result<Outcome, Error> {
    let client = key.ctx().client_id();
    let limit = settings::limit(&MAX_WAITERS);
    let Claim { kind, owner, .. } = &wait.claim;
    let id = with_lock(key, |State { locks, pending, .. }, db, name| {
        let has_capacity = locks.has_capacity(limit) && locks.has_capacity_for_copy(db, name, *kind, owner);
        if has_capacity { pending.insert_blocked(client, wait.session) } else { None }
    });
    let id = id.ok_or(Error::QueueFull)?;

    // This comes before it joins the queue: a request that does not wait must not change a queue entry that it would share.
    let handle = key.block(server_id_of(id));
    if handle.is_none() {
        key.with_state(|state| state.pending.remove(id));
        return Ok(Outcome::Nil);
    }
    key.with_state(|state| {
        let entry = state.pending.get_mut(id);
        debug_assert!(entry.is_some(), "the request ended before it joined the queue");
        entry.map(|entry| entry.reply_via = ReplyVia::BlockedClient(handle))
    });
    let joined = join(key, wait, id, limit);
    debug_assert!(joined.is_some(), "the capacity was checked before");
    if joined.is_none() {
        delivery::end_wait(key.server_mut(), waiter_id(id), WaitState::Ended);
    }
    Ok(Outcome::Waiting)
}

/// Adds the request to the queue. It replaces an earlier request with the same claim and channel.
fn wait_for_message(key: &Key<'_, '_>, mut wait: Wait, channel: StringRef<'_>) -> Result<Outcome, Error> {
    if !server::has_subscriber(channel) {
        return Err(Error::NoSubscriber);
    }
    let (channel, now) = (channel.bytes(), wait.now);
    let client = key.ctx().client_id();
    let replaced = previous_request(key, &wait.claim, channel);
    // A repeat without SESSION keeps the session that the earlier request asked for.
    let wanted = |entry: &PendingReply| entry.session.filter(|_| entry.client == client);
    let session = wait.session.or(key.with_state(|state| state.pending.get(replaced?).and_then(wanted)));
    // The lease of the grant is at least that of its session, which is renewed after a third of its lease.
    wait.claim.lease = wait.claim.lease.max(session.map(|terms| terms.lease));
    // A replacement adds no waiter, so it is accepted even if the limit is exceeded.
    let limit = if replaced.is_some() { usize::MAX } else { settings::limit(&MAX_WAITERS) };
    let Claim { kind, owner, .. } = &wait.claim;
    let has_capacity = with_lock(key, |state, db, name| state.locks.has_capacity_for_copy(db, name, *kind, owner));
    if replaced.is_none() && !has_capacity {
        return Err(Error::QueueFull);
    }
    let id = key.with_state(|state| state.pending.insert_pubsub(client, session, channel)).ok_or(Error::QueueFull)?;
    if join(key, wait, id, limit).is_none() {
        key.with_state(|state| state.pending.remove(id));
        return Err(Error::QueueFull);
    }
    if server::is_in_cluster() {
        let slot = server::hash_slot(key.name().bytes());
        key.with_state(|state| state.slots.add_waiter(slot));
    }
    let end = settings::wait_end(EndReason::Disconnected, now);
    key.with_state(|State { locks, pending, .. }| {
        if let Some(replaced) = replaced {
            let wait_state = pending.get(replaced).map(|entry| entry.wait_state());
            debug_assert!(matches!(wait_state, Some(WaitState::Waiting(_))), "a queue has an entry that does not wait");
            if let Some(WaitState::Waiting(request)) = wait_state {
                let withdrawn = locks.withdraw_request(request, None, end);
                debug_assert_eq!(withdrawn, Some(waiter_id(replaced)), "a wait and its request do not agree");
            }
            pending.remove(replaced);
        }
    });
    Ok(Outcome::WaitsForMessage)
}

/// Adds a request to the queue, or returns `None` if that is full.
fn join(key: &Key<'_, '_>, Wait { claim, now, deadline, .. }: Wait, id: PendingReplyId, limit: usize) -> Option<()> {
    with_lock(key, |State { locks, pending, stats, .. }, db, name| {
        let joined = locks.join(JoinRequest { db, key: name, claim, waiter: waiter_id(id), now, deadline }, limit)?;
        let before = pending.set_wait_state(id, WaitState::Waiting(joined.request));
        debug_assert!(matches!(before, Some(WaitState::Ended)), "the request is in a queue already");
        if joined.rejoined {
            increment(&mut stats.resent);
        }
        Some(())
    })
}

/// Returns the request with the same claim that waits for a message on the same channel, if there is one. A new request
/// replaces it.
fn previous_request(key: &Key<'_, '_>, claim: &Claim, channel: &[u8]) -> Option<PendingReplyId> {
    with_lock(key, |State { locks, pending, .. }, db, name| {
        let is_via_channel = |id: &PendingReplyId| {
            let entry = pending.get(*id).or_bug("a queue has a request that no client waits for");
            let own_channel = entry.and_then(|entry| entry.channel());
            own_channel.is_some_and(|own: &Rc<[u8]>| **own == *channel)
        };
        locks.waiters_of(db, name, claim.kind, &claim.owner).map(pending_id).find(is_via_channel)
    })
}
