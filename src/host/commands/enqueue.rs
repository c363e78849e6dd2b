//! Adds a request to the queue of a lock.

use crate::core::{
    BlockTimeout, Claim, EndReason, Error, JoinRequest, Kind, OrBug, Request, SessionTerms, UnixMs, WaiterId, increment,
};
use crate::host::replies::delivery::{self, server_id_of};
use crate::host::settings::{self, MAX_BLOCK_MS, MAX_WAITERS};
use crate::host::state::pending_replies::{PendingReplyId, ReplyVia, WaitState, waiter_id};
use crate::host::state::{Key, Locks, State, with_lock};
use crate::server::{self, StringRef, ValueType};

/// The outcome of a request.
pub enum Outcome {
    Integer(i64),
    Nil,
    /// The request is in the queue, in the place of this waiter, and its client is blocked. There is no reply yet.
    Waiting(Option<WaiterId>),
    /// The request is in the queue, in the place of this waiter, and its client gets a message.
    WaitsForMessage(Option<WaiterId>),
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
/// already, and [`Error::NoSubscriber`] if the channel has no subscriber.
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
    let id = with_lock(key, |State { locks, pending, .. }, db, name| {
        let may_join = locks.has_capacity(limit) || locks.request_of(db, name, &wait.claim.owner).is_some();
        if may_join { pending.insert_blocked(client, wait.session) } else { None }
    });
    let id = id.ok_or(Error::QueueFull)?;

    // This comes before it joins the queue: a request that does not wait must not take the place of another one.
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
    Ok(Outcome::Waiting(joined.flatten()))
}

/// Adds the request to the queue, for a message on the channel.
fn wait_for_message(key: &Key<'_, '_>, wait: Wait, channel: StringRef<'_>) -> Result<Outcome, Error> {
    if !server::has_subscriber(channel) {
        return Err(Error::NoSubscriber);
    }
    let (client, limit) = (key.ctx().client_id(), settings::limit(&MAX_WAITERS));
    let id = key.with_state(|state| state.pending.insert_pubsub(client, wait.session, channel.bytes()));
    let id = id.ok_or(Error::QueueFull)?;
    let Some(replaced) = join(key, wait, id, limit) else {
        key.with_state(|state| state.pending.remove(id));
        return Err(Error::QueueFull);
    };
    if server::is_in_cluster() {
        let slot = server::hash_slot(key.name().bytes());
        key.with_state(|state| state.slots.add_waiter(slot));
    }
    Ok(Outcome::WaitsForMessage(replaced))
}

/// Adds a request to the queue, or returns `None` if that is full. Returns the waiter whose place it takes.
fn join(
    key: &Key<'_, '_>,
    Wait { claim, now, deadline, .. }: Wait,
    id: PendingReplyId,
    limit: usize,
) -> Option<Option<WaiterId>> {
    let end = settings::wait_end(EndReason::Replaced, now);
    with_lock(key, |State { locks, pending, stats, .. }, db, name| {
        let joined =
            locks.join(JoinRequest { db, key: name, claim, waiter: waiter_id(id), now, deadline }, limit, end)?;
        let before = pending.set_wait_state(id, WaitState::Waiting(joined.entry));
        debug_assert!(matches!(before, Some(WaitState::Ended)), "the request is in a queue already");
        if joined.rejoined {
            increment(&mut stats.resent);
        }
        Some(joined.replaced)
    })
}
