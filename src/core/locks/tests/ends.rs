//! The ends of waits in the slow log.

use super::*;
use crate::core::{EndReason, SlowLogLimits};

/// Returns an end at `NOW + ms`. Waits of 10 ms or more are logged.
fn end(reason: EndReason, ms: i64) -> WaitEnd {
    WaitEnd { reason, now: NOW + ms, limits: SlowLogLimits { min_wait_ms: 10, max_len: 100 } }
}

/// Adds a request at `NOW + ms`.
fn join_at(waiting: &mut Locks, owner: &str, kind: Kind, waiter: u64, ms: i64) -> EntryId {
    let claim = Claim { kind, ..claim(owner) };
    let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(waiter), now: NOW + ms, deadline: None };
    waiting.join(join, NO_LIMIT, end(EndReason::Replaced, ms)).unwrap().entry
}

/// Returns owner, wait, reason and number of other requests of all entries, the first first.
fn logged(waiting: &Locks) -> Vec<(String, i64, EndReason, usize)> {
    let entries = waiting
        .slow_log
        .latest()
        .map(|entry| (String::from_utf8_lossy(&entry.owner).into_owned(), entry.waited_ms, entry.reason, entry.others));
    let mut entries: Vec<_> = entries.collect();
    entries.reverse();
    entries
}

#[test]
fn each_removal_logs_its_reason() {
    let mut waiting = Locks::new();
    let requests = [1, 2, 3, 4].map(|waiter| join(&mut waiting, waiter, None));
    let queue = queue(&waiting);
    waiting.grant_first(queue, end(EndReason::Granted, 10));
    waiting.withdraw_owner(0, b"k", b"2", end(EndReason::Withdrawn, 20));
    waiting.withdraw(requests[2], Some(NOW + 90), end(EndReason::TimedOut, 30));
    waiting.withdraw(requests[2], Some(NOW + 90), end(EndReason::TimedOut, 35));
    waiting.withdraw(requests[3], None, end(EndReason::Disconnected, 40));
    let expected = [
        ("1".to_owned(), 10, EndReason::Granted, 3),
        ("2".to_owned(), 20, EndReason::Withdrawn, 2),
        ("3".to_owned(), 30, EndReason::TimedOut, 1),
        ("4".to_owned(), 40, EndReason::Disconnected, 0),
    ];
    assert_eq!(logged(&waiting), expected);
}

#[test]
fn wait_counts_from_request_not_from_entry() {
    let mut waiting = Locks::new();
    let first = join_at(&mut waiting, "a", Kind::Mutex, 1, 0);
    waiting.withdraw(first, Some(NOW + 90), end(EndReason::TimedOut, 9));
    join_at(&mut waiting, "a", Kind::Mutex, 2, 30);
    join_at(&mut waiting, "b", Kind::Mutex, 3, 30);
    let queue = queue(&waiting);
    waiting.grant_first(queue, end(EndReason::Granted, 39));
    assert_eq!(logged(&waiting), [], "both waited 9 ms");
    waiting.grant_first(queue, end(EndReason::Granted, 40));
    assert_eq!(logged(&waiting), [("b".to_owned(), 10, EndReason::Granted, 0)]);
}

#[test]
fn replaced_request_logs_its_own_wait() {
    let mut waiting = Locks::new();
    for (kind, waiter, ms) in [(Kind::Mutex, 1, 0), (Kind::Mutex, 2, 9), (Kind::Mutex, 3, 40), (Kind::Shared, 4, 60)] {
        join_at(&mut waiting, "a", kind, waiter, ms);
    }
    let replaced = |waited_ms| ("a".to_owned(), waited_ms, EndReason::Replaced, 0);
    assert_eq!(logged(&waiting), [replaced(31), replaced(20)], "the first waited 9 ms");
}
