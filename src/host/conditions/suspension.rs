//! Suspends grants: in the recovery period, after a stall of the event loop, and while replicas do not respond.
//!
//! A server that has just started, or has become a master, may not know the last grants. A master whose event loop has stalled,
//! or whose replicas do not respond, may have been replaced. It notices that when its replicas have been missing for
//! `min-replicas-max-lag`. While `lock.recovery-ms` is set, neither grants a lock before the leases that the other may have
//! granted have ended.
//!
//! A suspended grant changes nothing: the key is free, the queue stays, and the session keeps its right to the lock. When the
//! suspension ends, all locks with waiters are reviewed.

use crate::core::{DEFAULT_LAG_S, Error, MIN_SUSPENSION_MS, ReplicaWatch, SuspensionChange};
use crate::host::settings::{MAX_LEASE_MS, RECOVERY_MS};
use crate::host::state::{self, Context, Locks};
use crate::server::{self, Server};

/// The time beyond `min-replicas-max-lag` that a server may need to notice that its replicas are missing, in milliseconds. It
/// counts lags in whole seconds, and checks them once a second.
const LAG_MARGIN_MS: i64 = 3000;

/// Begins a recovery period: the server has started, or has become a master.
pub fn begin(server: &Server) {
    state::with(server, |state| state.recovery.begin(server::monotonic_ms()));
    update_suspension_soon(server);
}

/// Schedules an update of the suspension, because a setting or the role may have changed it.
pub fn update_suspension_soon(server: &Server) {
    if RECOVERY_MS.get() > 0 {
        server::subscribe_to_roles::<Locks>();
    }
    let must_update = state::with(server, |state| {
        state.note_suspension(); // A grant may be suspended before the update.
        RECOVERY_MS.get() > 0 || state.watches_stalls || state.recovery.is_suspending()
    });
    if must_update {
        server::run_timer_soon::<Locks>();
    }
}

/// Returns whether grants are suspended in this step: the lock may have a holder that this server does not know. When the
/// suspension ends, all locks with waiters are reviewed.
#[inline(always)]
pub fn suspends_grants(server: &Server) -> bool {
    RECOVERY_MS.get() > 0 && state::with(server, |state| state.suspends_grants)
}

/// Checks that the end of a lease may be set. It may not if another server may have replaced this one, and while the previous
/// master may still grant locks: it does not know the new lease, and grants the lock to its next waiter when the old lease ends.
#[inline(always)]
pub fn check_lease_change(server: &Server) -> Result<(), Error> {
    match RECOVERY_MS.get() {
        0 => Ok(()),
        _ if may_be_replaced(server) => Err(Error::MayBeReplaced),
        _ if other_may_grant(server) => Err(Error::JustBegun),
        _ => Ok(()),
    }
}

/// Returns whether the previous master may still grant locks. It may until `lock.max-lease-ms` before the end of the recovery
/// period. Without `lock.max-lease-ms` the time is unknown, and the answer is `false`.
fn other_may_grant(server: &Server) -> bool {
    let longest_ms = MAX_LEASE_MS.get();
    let first_part_ms = RECOVERY_MS.get().saturating_sub(longest_ms);
    longest_ms > 0
        && state::with(server, |state| state.recovery.remaining_ms(first_part_ms, server::monotonic_ms()) > 0)
}

/// Returns whether another server may have replaced this one as the master.
fn may_be_replaced(server: &Server) -> bool {
    state::with(server, |state| {
        state.replica_watch.lacks_replicas() || state.stall.suspended_ms(server::monotonic_ms()) > 0
    })
}

/// Updates the suspension, on a master or a replica. When it ends, all locks with waiters are reviewed.
pub fn update_suspension(ctx: &mut Context<'_>, is_replica: bool) {
    let watches = RECOVERY_MS.get() > 0 && !is_replica;
    if watches {
        check_replicas(ctx);
    }
    let (change, grants_suspended_ms) = ctx.with_state(|state| {
        state.watches_stalls = watches;
        if !watches {
            state.replica_watch = ReplicaWatch::new(); // What the last check found is out of date when the next one begins.
        }
        let until_seen_ms = state.replica_watch.max_lag_ms().saturating_add(LAG_MARGIN_MS);
        let suspension_ms = if watches { until_seen_ms } else { MIN_SUSPENSION_MS };
        state.stall.set_suspension(suspension_ms);
        let grants_suspended_ms = if watches { state.grants_suspended_ms() } else { 0 };
        (state.recovery.update(grants_suspended_ms > 0), grants_suspended_ms)
    });
    match change {
        Some(SuspensionChange::Began) => ctx.notice(&format!(
            "granting no lock for {grants_suspended_ms} ms, because this server may not know all holders (lock.recovery-ms)"
        )),
        Some(SuspensionChange::Ended) => {
            if !is_replica {
                ctx.notice("granting locks again");
            }
            ctx.with_state(|state| state.locks.review_all());
        }
        None => {}
    }
}

/// Checks whether the replicas respond, if that is due. Where the command CONFIG is renamed, the number of replicas that are
/// needed is unknown and taken as 0.
///
/// The server checks `min-replicas-to-write` itself, but in a fraction of the runs of its cron: while commands keep its event
/// loop busy, as rarely as every ten seconds. This check follows the clock.
fn check_replicas(ctx: &mut Context<'_>) {
    let now = server::monotonic_ms();
    if ctx.with_state(|state| state.replica_watch.is_due(now)) {
        let max_lag_s = server::server_setting(c"min-replicas-max-lag").unwrap_or(DEFAULT_LAG_S);
        let needed = server::server_setting(c"min-replicas-to-write").unwrap_or(0);
        let responding = if needed > 0 { ctx.responding_replicas(max_lag_s) } else { 0 };
        ctx.with_state(|state| state.replica_watch.record_check(now, max_lag_s, needed, responding));
    }
}
