//! Restarts the module with an empty state after a panic.
//!
//! A panic may have interrupted any change of the module's state, so the module drops its queues, sessions and revocations, and
//! notifies the waiters. Locks are keys, which a panic does not change. Leases go on, as after a failover. The events of the
//! time since the panic may be missed: a lock that belonged to a connection ends with its lease, and the recovery period begins
//! again, because the server may have become a master. The slow log stays, with the waits that end here.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::{self, EndReason, RETRY_MS};
use crate::host::conditions::suspension;
use crate::host::replies::messages::{Event, Subject, message};
use crate::host::state::{Context, Locks, State};
use crate::host::{alarm, settings};
use crate::server;

/// Whether the restart is due.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Whether the background work is running.
static IS_WORKING: AtomicBool = AtomicBool::new(false);

/// Schedules the restart for the next run of the background work, when no other call is in progress.
pub fn begin_soon() {
    IS_DUE.store(true, Ordering::Relaxed);
    if IS_WORKING.swap(false, Ordering::Relaxed) {
        // The background work itself panicked. If it panics in each run, the delay leaves the server time for its clients.
        alarm::set_at(Some(server::now_ms().saturating_add(RETRY_MS)));
    } else {
        server::run_timer_soon::<Locks>();
    }
}

/// Runs the background work. Restarts the module before it if there was a panic.
#[inline]
pub fn work(ctx: &mut Context<'_>, work: fn(&mut Context<'_>)) {
    IS_WORKING.store(true, Ordering::Relaxed);
    if IS_DUE.swap(false, Ordering::Relaxed) {
        begin(ctx);
    }
    work(ctx);
    IS_WORKING.store(false, Ordering::Relaxed);
}

#[cold]
fn begin(ctx: &Context<'_>) {
    ctx.warn(
        "restarting with an empty state after a panic: waiting requests are answered, sessions have ended, leases remain",
    );
    let now = server::now_ms();
    let _dropped = ctx.with_state(|state| {
        let State { locks, pending, postponed, .. } = state;
        for (channel, entry) in pending.fail_all() {
            let reason = if channel.is_some() { EndReason::Lost } else { EndReason::Disconnected };
            locks.log_failed(entry, settings::wait_end(reason, now));
            if let (Some(channel), Some((queue, claim))) = (channel, locks.origin_of(entry)) {
                let subject = Subject { db: queue.db(), key: &queue.key, owner: &claim.owner };
                postponed.push_back((channel, message(Event::Aborted, subject)));
            }
        }
        let mut dropped = mem::replace(locks, core::Locks::new());
        mem::swap(&mut dropped.slow_log, &mut locks.slow_log);
        dropped
    });
    debug_assert!(ctx.with_state(|state| state.is_idle() && !state.pending.has_messages()), "the state is empty");
    debug_assert!(ctx.with_state(|state| !state.locks.has_deliveries()), "no delivery is left");
    suspension::begin(ctx.server());
}
