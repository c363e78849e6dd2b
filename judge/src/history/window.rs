//! Windows of a lock's history. Between two windows no call is under way, and the lock is free as far as anybody can
//! know: each token was released, or its lease may have ended and no later call shows that it holds the lock.

use super::lock::{LockHistory, Timed};
use crate::specification::lock::{Reply, Time};

/// The calls of a window, in the order of their invocations.
pub type Window = Vec<Timed>;

/// Divides the history of a lock.
pub fn windows(history: &LockHistory) -> Vec<Window> {
    let mut spans: Vec<(Time, Time, &Vec<Timed>)> =
        history.calls.iter().map(|calls| (begin(calls), end(calls), calls)).collect();
    spans.sort_by_key(|(begin, ..)| *begin);
    let (mut windows, mut last): (Vec<Window>, Time) = (Vec::new(), 0);
    for (begin, end, calls) in spans {
        match windows.last_mut().filter(|_| begin <= last) {
            Some(window) => window.extend(calls),
            None => windows.push(calls.clone()),
        }
        last = last.max(end);
    }
    windows.iter_mut().for_each(|window| window.sort_by_key(|one| one.call.invoked));
    windows
}

fn begin(calls: &[Timed]) -> Time {
    calls.iter().map(|one| one.call.invoked).min().unwrap_or_default()
}

/// The time from which on the token can be taken to hold nothing.
fn end(calls: &[Timed]) -> Time {
    let completed = calls.iter().filter(|one| one.reply.is_some()).map(|one| one.call.completed);
    let last = completed.max().unwrap_or_default();
    let is_released = calls.iter().any(|one| one.reply == Some(Reply::Left(0)) && one.call.completed == last);
    let ends = calls.iter().filter_map(|one| one.call.request.until());
    if is_released { last } else { ends.max().unwrap_or_default().max(last) }
}
