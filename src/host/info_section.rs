//! `INFO lock`.

use std::ffi::CStr;

use super::settings::RECOVERY_MS;
use super::state::State;
use crate::core::{Cause, Contention, WAIT_BUCKETS_MS, bug_count};
use crate::server;

/// Returns the names and values of the fields. The server prefixes the names with `lock_`. O(N) in the number of locks that are
/// waited for.
pub fn fields(state: &State) -> Vec<(String, u64)> {
    let stats = &state.stats;
    let waiters = state.locks.waiter_count();
    let Contention { locks, since } = state.locks.contention();
    let longest_wait = since.map_or(0, |since| server::now_ms().saturating_sub(since));
    let mut fields = vec![
        ("waiters".to_owned(), waiters as u64),
        ("waiters_notified".to_owned(), state.pending.pubsub_count() as u64),
        ("contended_locks".to_owned(), locks as u64),
        ("longest_wait_ms".to_owned(), u64::try_from(longest_wait).unwrap_or(0)),
        ("sessions".to_owned(), state.locks.session_count() as u64),
        ("recovery_ms".to_owned(), u64::try_from(state.grants_suspended_ms()).unwrap_or_default()),
        ("granted_at_once".to_owned(), stats.granted_at_once),
        ("granted_after_waiting".to_owned(), stats.granted_after_waiting()),
        ("timed_out".to_owned(), stats.timed_out),
        ("cancelled".to_owned(), stats.cancelled),
        ("resent".to_owned(), stats.resent),
        ("slow_waits".to_owned(), state.locks.slow_log.total()),
        ("grace_periods".to_owned(), stats.grace_periods),
    ];
    fields.extend(Cause::ALL.map(|cause| (format!("handovers_{}", cause.name()), stats.handovers(cause))));
    fields.push(("not_owner_errors".to_owned(), stats.not_owner));
    fields.push(("replication_errors".to_owned(), stats.not_replicated));
    fields.push(("bugs".to_owned(), bug_count()));
    let bounds = WAIT_BUCKETS_MS.iter().map(i64::to_string).chain(["inf".to_owned()]);
    fields.extend(bounds.zip(stats.waits_within()).map(|(bound, waits)| (format!("waits_le_{bound}_ms"), waits)));
    fields
}

/// Returns why no lock is granted now, the reason that an operator must remove first, or `none`. The module knows that the server
/// refuses writes only while it has something to write.
pub fn suspended_by(state: &State) -> &'static CStr {
    let (now, recovery_ms) = (server::monotonic_ms(), RECOVERY_MS.get());
    let reasons = [
        (c"replicas", recovery_ms > 0 && state.replica_watch.lacks_replicas()),
        (c"paused", server::is_paused()),
        (c"recovery", state.recovery.remaining_ms(recovery_ms, now) > 0),
        (c"stall", state.stall.suspended_ms(now) > 0),
        (c"refused", state.refused.is_retrying(now)),
    ];
    reasons.into_iter().find(|(_, suspends)| *suspends).map_or(c"none", |(reason, _)| reason)
}
