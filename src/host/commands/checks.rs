//! The checks of a request before anything is changed: what the connection may do here, and the limits of the settings.

use crate::command::{Request, WaitOptions};
use crate::core::{Decision, Error, HoldKey, Kind, OrBug, Session, UnixMs, Write};
use crate::host::background::suspension;
use crate::host::settings::{self, MAX_SESSIONS};
use crate::host::state::{self, Context, Key, State};
use crate::host::waiting::pending_replies::pending_id;
use crate::server::{Arguments, ContextFlags, StringRef};

/// Checks the lease of a request, and that its session can begin here. `is_restricted` is whether a setting can limit the lease.
///
/// # Errors
///
/// As for [`check_session_here`], or the error of [`Request::check_lease`].
#[inline(always)]
pub fn check_request(ctx: &Context<'_>, request: &impl Request, is_restricted: bool) -> Result<(), Error> {
    if is_restricted {
        check_lease(request)?;
    }
    if request.session().is_some() { check_session_here(ctx) } else { Ok(()) }
}

/// Checks that a session can begin here.
///
/// # Errors
///
/// [`Error::SessionInScript`] if the request has no connection: in a script, or in a call by another module.
/// [`Error::SessionOnReplica`] on a replica, even if it accepts writes of clients.
#[cold]
fn check_session_here(ctx: &Context<'_>) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::SessionInScript);
    }
    if ctx.flags().contains(ContextFlags::REPLICA) { Err(Error::SessionOnReplica) } else { Ok(()) }
}

/// Checks that a request can wait for a message.
///
/// # Errors
///
/// [`Error::NotifyInScript`] if the request has no connection, [`Error::TokenWithSpace`] if its token is not one word, and
/// [`Error::NoRightToChannel`] if no ACL selector of its user allows the channel, the command and the key together.
#[cold]
pub fn check_notify_here(
    ctx: &Context<'_>,
    caller: &[u8],
    arguments: Arguments<'_>,
    channel: StringRef<'_>,
) -> Result<(), Error> {
    if !ctx.has_connection() {
        return Err(Error::NotifyInScript);
    }
    if caller.contains(&b' ') {
        return Err(Error::TokenWithSpace);
    }
    if ctx.may_publish_with(arguments, channel) { Ok(()) } else { Err(Error::NoRightToChannel) }
}

/// Refuses a lease that is longer than `lock.max-lease-ms`, or missing.
#[cold]
fn check_lease(request: &impl Request) -> Result<(), Error> {
    settings::longest_lease().map_or(Ok(()), |longest| request.check_lease(longest))
}

/// Applies `lock.recovery-ms` and `lock.max-lease-ms` to a decision. EXTEND can add to a lease, so the end of the lease is
/// known only after the decision.
#[cold]
pub fn restrict(decided: Result<Decision, Error>, now: UnixMs) -> Result<Decision, Error> {
    let longest = settings::longest_lease();
    let is_too_long = |end| longest.is_some_and(|longest| end > longest.end_from(now));
    match suspension::restrict(decided)? {
        Decision::Done { write: Write::SetLease(end), .. } if is_too_long(end) => Err(Error::LeaseLimit),
        decision => Ok(decision),
    }
}

/// The maximum number of connections of one session. A session ends in one step, so this limits the length of the step.
const MAX_CONNECTIONS: usize = 1000;

/// Refuses a request that would exceed `lock.max-sessions` or [`MAX_CONNECTIONS`], before anything is changed.
///
/// Some requests add no connection and are accepted: the reply is nil; the connection is in the session of the lock already, or
/// waits for it already; the request replaces an earlier one that waits for a message on the same channel.
///
/// # Errors
///
/// [`Error::SessionFull`].
pub fn check_session_limit(
    key: &Key<'_, '_>,
    kind: Kind,
    caller: &[u8],
    decision: Decision,
    wait: Option<WaitOptions>,
    channel: Option<StringRef<'_>>,
) -> Result<Decision, Error> {
    if decision == Decision::Contended && !wait.is_some_and(|wait| may_wait(key, wait)) {
        return Ok(decision);
    }
    let limit = settings::limit(&MAX_SESSIONS);
    let (db, name, client) = (key.ctx().db(), key.name().bytes(), key.ctx().client_id());
    state::with(|State { sessions, waiting, pending, .. }| {
        let is_same = |session: &Session| session.lock.kind == kind && *session.lock.owner == *caller;
        let known = sessions.find(HoldKey::of(db, name, kind, caller));
        debug_assert!(known.is_none_or(|id| sessions.get(id).is_some()), "the index has a session that does not exist");
        let known = known.filter(|&id| sessions.get(id).is_some_and(is_same));
        let is_crowded = known.is_some_and(|id| sessions.clients(id).count() >= MAX_CONNECTIONS);
        let has_capacity = sessions.pairs().saturating_add(pending.session_waiters()) < limit && !is_crowded;
        if has_capacity {
            return Ok(decision);
        }
        let channel = channel.filter(|_| decision == Decision::Contended).map(StringRef::bytes);
        let asked = |waiter| {
            let entry = pending.get(pending_id(waiter)).or_bug("a queue has a request that no client waits for");
            entry.is_some_and(|entry| entry.asks_for_session(client, channel))
        };
        let is_repeated = known.is_some_and(|id| sessions.clients(id).any(|other| other == client))
            || waiting.waiters_of(db, name, kind, caller).any(asked);
        if is_repeated { Ok(decision) } else { Err(Error::SessionFull) }
    })
}

/// Returns whether a request can wait here. A replica, even if it accepts writes of clients, never grants a lock to a waiter.
pub fn may_wait(key: &Key<'_, '_>, wait: WaitOptions) -> bool {
    let obstacles = if wait.notify.is_some() { ContextFlags::empty() } else { ContextFlags::DENY_BLOCKING };
    !key.ctx().flags().intersects(obstacles | ContextFlags::REPLICA)
}
