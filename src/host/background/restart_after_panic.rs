//! What the module does after a panic.
//!
//! A panic may have interrupted any change of what the module remembers. Locks are keys and are not concerned: so the module
//! forgets the lines, the sessions and what is to be taken back, and tells those who waited. Leases go on, as after a
//! failover. Who may have closed a connection, or have become a master, meanwhile is not known any more: a lock that belonged
//! to a connection ends with its lease, and the recovery period begins anew.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use super::alarm;
use super::suspension;
use crate::core::{RETRY_MS, Revocations, Sessions, WaitQueues};
use crate::host::state::{self, Context, Locks, State};
use crate::host::waiting::messages::{self, Subject};
use crate::server;

/// Whether the module is to begin anew.
static IS_DUE: AtomicBool = AtomicBool::new(false);

/// Whether the background work is under way.
static IS_WORKING: AtomicBool = AtomicBool::new(false);

/// Has the module begin anew in the next run of the background work, where nothing else is under way.
pub fn begin_soon() {
    IS_DUE.store(true, Ordering::Relaxed);
    if IS_WORKING.swap(false, Ordering::Relaxed) {
        // A panic each time must not keep the server busy.
        alarm::set_at(Some(server::now_ms().saturating_add(RETRY_MS)));
    } else {
        server::run_timer_soon::<Locks>();
    }
}

/// Runs the background work, and begins anew before it if there was a panic.
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
    ctx.warn("begins anew after a panic: requests that waited are answered, sessions have ended, leases go on");
    let _forgotten = state::with(|state| {
        let State { waiting, pending, sessions, revocations, postponed, .. } = state;
        for (channel, request) in pending.fail_all() {
            if let Some((queue, claim)) = waiting.origin_of(request) {
                let subject = Subject { db: queue.db, key: &queue.key, owner: &claim.owner };
                postponed.push_back((channel, messages::aborted_message(subject)));
            }
        }
        let waiting = mem::replace(waiting, WaitQueues::new());
        let sessions = mem::replace(sessions, Sessions::new());
        (waiting, sessions, mem::replace(revocations, Revocations::new()))
    });
    suspension::begin();
}
