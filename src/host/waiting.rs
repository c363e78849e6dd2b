//! Lets a client wait in line.

use super::clients::{WaitState, waiter_id};
use super::grants::server_id_of;
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
    let (client, db, name) = (key.ctx().client_id(), key.ctx().db(), key.name().bytes());
    let deadline = wait.timeout.deadline(now, if planted!(WaitsWithoutEnd) { 0 } else { MAX_BLOCK_MS.get() });
    let claim = Claim { kind: wait.kind, owner: caller.into(), lease: wait.lease };
    let session = wait.lease.filter(|_| wait.session);
    let limit = settings::limit(&MAX_WAITERS);
    let (id, joined) = state::with(|State { waiting, blocked, .. }| {
        let id = blocked.insert(client, session)?;
        let join = Join { db, key: name, claim, waiter: waiter_id(id), now, deadline };
        let joined = waiting.join(join, limit);
        if joined.is_none() {
            blocked.remove(id);
        }
        Some((id, joined?))
    })
    .ok_or(Error::QueueFull)?;

    let client = key.block(server_id_of(id));
    Ok(state::with(|State { waiting, blocked, stats, .. }| {
        if client.is_none() {
            // A place that the claim had before is kept.
            waiting.leave(joined.request, settings::kept_until(now).filter(|_| joined.rejoined));
            blocked.remove(id);
            return false;
        }
        if let Some(entry) = blocked.get_mut(id) {
            entry.handle = client;
        }
        blocked.set_wait_state(id, WaitState::Waiting(joined.request));
        if joined.rejoined {
            increment(&mut stats.resent);
        }
        true
    }))
}
