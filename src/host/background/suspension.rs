//! When grants are held back: in the recovery period, after a standstill of the event loop, and while replicas are silent.
//!
//! A server that has just started, or has become a master, may have forgotten the last grants. A master whose loop stood
//! still, or has not heard of its replicas, may have been replaced meanwhile, which it learns when they are gone for
//! `min-replicas-max-lag`. As long as `lock.recovery-ms` is set, neither grants a lock before what the other may have granted
//! has ended.
//!
//! What a grant would have made of it stays: the key is free, the line stands, and the session keeps its turn. When the
//! time is over, all locks that are waited for are looked at.

use super::alarm;
use crate::core::{DEFAULT_LAG_S, Decision, Error, MIN_SUSPENSION_MS, SuspensionChange, Write};
use crate::host::settings::{MAX_LEASE_MS, RECOVERY_MS};
use crate::host::state::{self, Context, Locks};
use crate::server;

/// How much longer than `min-replicas-max-lag` a server may take to see that its replicas are gone, in milliseconds. It
/// counts lags in whole seconds, and looks at them once a second.
const LAG_MARGIN_MS: i64 = 3000;

/// Begins a recovery period: the server has started, or has become a master.
pub fn begin() {
    state::with(|state| state.recovery.begin(server::monotonic_ms()));
    update_suspension_soon();
}

/// Has the time in which grants are held back followed from now on, or to its end: it may have been set otherwise.
pub fn update_suspension_soon() {
    if RECOVERY_MS.get() > 0 {
        server::subscribe_to_roles::<Locks>();
    }
    if RECOVERY_MS.get() > 0 || state::with(|state| state.watches_stalls || state.recovery.is_suspending()) {
        server::run_timer_soon::<Locks>();
    }
}

/// Returns whether the grant that is due now is held back. If so, the lock is looked at when that is over.
#[inline(always)]
pub fn suspends_grant() -> bool {
    RECOVERY_MS.get() > 0 && suspend_grant()
}

#[cold]
fn suspend_grant() -> bool {
    let is_suspended = state::with(|state| {
        let is_suspended = state.grants_suspended_ms() > 0;
        if is_suspended {
            state.recovery.suspend();
        }
        is_suspended
    });
    if is_suspended {
        alarm::set();
    }
    is_suspended
}

/// Returns what is decided on a request while grants are held back: somebody may hold the lock of whom the server does not
/// know.
///
/// # Errors
///
/// [`Error::MayBeReplaced`] if a lease would be lengthened, which a server that was replaced must not do.
/// [`Error::JustBegun`] if it would be while the master that was replaced may still grant locks. To that one the lease ends
/// when it did, and the next in line gets the lock there.
pub fn restrict(decided: Result<Decision, Error>) -> Result<Decision, Error> {
    match decided {
        decided if RECOVERY_MS.get() == 0 => decided,
        Ok(Decision::Done { write: Write::Take { .. }, .. }) if suspend_grant() => Ok(Decision::Contended),
        Ok(Decision::Done { write, .. }) if sets_lease(write) && may_be_replaced() => Err(Error::MayBeReplaced),
        Ok(Decision::Done { write, .. }) if sets_lease(write) && other_may_grant() => Err(Error::JustBegun),
        decided => decided,
    }
}

fn sets_lease(write: Write) -> bool {
    match write {
        Write::Confirm { lease_end } | Write::SetHolds { lease_end, .. } => lease_end.is_some(),
        Write::SetLease(_) => true,
        Write::Take { .. } | Write::Free | Write::RemoveShare => false,
    }
}

/// Returns whether leases must end when they do now: another server may grant the locks then.
pub fn forbids_longer_leases() -> bool {
    RECOVERY_MS.get() > 0 && (may_be_replaced() || other_may_grant())
}

/// Returns whether the master before this one may still grant locks. It does until the longest lease before the end of the
/// recovery period; without a longest lease nothing is known of that.
fn other_may_grant() -> bool {
    let longest_ms = MAX_LEASE_MS.get();
    let first_part_ms = RECOVERY_MS.get().saturating_sub(longest_ms);
    longest_ms > 0 && state::with(|state| state.recovery.remaining_ms(first_part_ms, server::monotonic_ms()) > 0)
}

/// Returns whether another server may have taken this one's place.
fn may_be_replaced() -> bool {
    state::with(|state| state.replica_watch.lacks_replicas() || state.stall.suspended_ms(server::monotonic_ms()) > 0)
}

/// Follows the time in which grants are held back, on a master or a replica. When it is over, all locks that are waited
/// for are looked at.
pub fn update_suspension(ctx: &mut Context<'_>, is_replica: bool) {
    let watches = RECOVERY_MS.get() > 0 && !is_replica;
    if watches {
        check_replicas(ctx);
    }
    let (change, grants_suspended_ms) = state::with(|state| {
        state.watches_stalls = watches;
        let until_seen_ms = state.replica_watch.max_lag_ms().saturating_add(LAG_MARGIN_MS);
        let suspension_ms = if watches { until_seen_ms } else { MIN_SUSPENSION_MS };
        state.stall.set_suspension(suspension_ms);
        let grants_suspended_ms = if watches { state.grants_suspended_ms() } else { 0 };
        (state.recovery.update(grants_suspended_ms > 0), grants_suspended_ms)
    });
    match change {
        Some(SuspensionChange::Began) => ctx.notice(&format!(
            "nobody is granted a lock for {grants_suspended_ms} ms: this server may not know of all that are held (lock.recovery-ms)"
        )),
        Some(SuspensionChange::Ended) => {
            if !is_replica {
                ctx.notice("locks are granted again");
            }
            state::with(|state| state.waiting.review_all());
        }
        None => {}
    }
}

/// Looks at the replicas, if that is due. Where CONFIG has another name, it is not known how many are needed.
///
/// The server does the same for `min-replicas-to-write`, but once in so many rounds of its cron: while commands hold up its
/// loop, only every ten seconds, say. This is by the clock.
fn check_replicas(ctx: &mut Context<'_>) {
    let now = server::monotonic_ms();
    if state::with(|state| state.replica_watch.is_due(now)) {
        let max_lag_s = server::server_setting(c"min-replicas-max-lag").unwrap_or(DEFAULT_LAG_S);
        let needed = server::server_setting(c"min-replicas-to-write").unwrap_or(0);
        let responding = if needed > 0 { ctx.responding_replicas(max_lag_s) } else { 0 };
        state::with(|state| state.replica_watch.record_check(now, max_lag_s, needed, responding));
    }
}
