//! `INFO lock`.

use super::state::State;
use crate::core::{Cause, WAIT_BUCKETS_MS};

/// Returns the names and values of the fields. The server prefixes the names with `lock_`.
pub fn fields(state: &State) -> Vec<(String, u64)> {
    let stats = &state.stats;
    planted!(InfoCountsLocks => return vec![("waiters".to_owned(), state.waiting.waiter_count().min(1) as u64)]);
    let mut fields = vec![
        ("waiters".to_owned(), state.waiting.waiter_count() as u64),
        ("sessions".to_owned(), state.sessions.len() as u64),
        ("granted_at_once".to_owned(), stats.granted_at_once),
        ("granted_after_waiting".to_owned(), stats.granted_after_waiting()),
        ("timed_out".to_owned(), stats.timed_out),
        ("cancelled".to_owned(), stats.cancelled),
        ("resent".to_owned(), stats.resent),
    ];
    let handovers = Cause::ALL.into_iter().map(|cause| (format!("handovers_{}", cause.name()), stats.handovers(cause)));
    fields.extend(handovers);
    fields.push(("not_owner_errors".to_owned(), stats.not_owner));
    let bounds = WAIT_BUCKETS_MS.iter().map(i64::to_string).chain(["inf".to_owned()]);
    let waits = bounds.zip(stats.waits_within()).map(|(bound, waits)| (format!("waits_le_{bound}_ms"), waits));
    fields.extend(waits);
    fields
}
