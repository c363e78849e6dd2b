//! Lets a client wait in line.

use super::clients::{WaitState, waiter_id};
use super::grants::{self, server_id_of};
use super::settings::{self, MAX_BLOCK_MS, MAX_WAITERS};
use super::state::{self, Key, Locks, State};
use crate::command::WaitOptions;
use crate::core::{Claim, Error, Join, UnixMs, increment};
use crate::server;

/// Blocks the client of this command until it gets the lock or times out.
///
/// Returns `false` if the server does not block this client. Otherwise the caller sends no reply.
///
/// # Errors
///
/// [`Error::QueueFull`] if `lock.max-waiters` requests wait already.
pub fn wait(key: &mut Key<'_, '_>, caller: &[u8], wait: WaitOptions, now: UnixMs) -> Result<bool, Error> {
    server::subscribe::<Locks>();
    let (client, db) = (key.ctx().client_id(), key.ctx().db());
    let deadline = wait.timeout.deadline(now, if planted!(WaitsWithoutEnd) { 0 } else { MAX_BLOCK_MS.get() });
    let claim = Claim { kind: wait.kind, owner: caller.into(), lease: wait.lease };
    let session = wait.lease.filter(|_| wait.session);
    let limit = settings::limit(&MAX_WAITERS);
    let id = state::with(
        |State { waiting, blocked, .. }| {
            if waiting.has_room(limit) { blocked.insert(client, session) } else { None }
        },
    )
    .ok_or(Error::QueueFull)?;

    // First, because a request that does not wait must leave no trace at a place that it would have shared.
    let handle = key.block(server_id_of(id));
    if handle.is_none() {
        planted!(RefusedLeavesTrace => {
            let name = key.name().bytes();
            state::with(|State { waiting, .. }| {
                let joined = waiting.join(Join { db, key: name, claim, waiter: waiter_id(id), now, deadline }, limit);
                joined.map(|joined| waiting.leave(joined.request, settings::kept_until(now).filter(|_| joined.rejoined)))
            })
        });
        state::with(|state| state.blocked.remove(id));
        return Ok(false);
    }
    let name = key.name().bytes();
    let joined = state::with(|State { waiting, blocked, stats, .. }| {
        // Whatever follows, the client can be answered.
        blocked.get_mut(id)?.handle = handle;
        let joined = waiting.join(Join { db, key: name, claim, waiter: waiter_id(id), now, deadline }, limit)?;
        blocked.set_wait_state(id, WaitState::Waiting(joined.request));
        if joined.rejoined {
            increment(&mut stats.resent);
        }
        Some(())
    });
    if joined.is_none() {
        grants::end_wait(waiter_id(id), WaitState::Over);
    }
    Ok(true)
}
