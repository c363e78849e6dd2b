mod ends;
mod sweeps;
mod turns;

use super::*;
use crate::core::{Cause, Kind, Lease, WaitEnd};

const NOW: UnixMs = 1_000;

const END: WaitEnd = WaitEnd::UNLOGGED;

const NO_LIMIT: usize = usize::MAX;

fn claim(owner: &str) -> Claim {
    Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None, limit: None }
}

/// Adds a request of `waiter` for lock "k" of database `db`, as `owner`.
fn join_as(waiting: &mut Locks, db: i32, owner: &str, waiter: u64, deadline: Option<UnixMs>) -> EntryId {
    let (claim, waiter) = (claim(owner), WaiterId(waiter));
    waiting.join(JoinRequest { db, key: b"k", claim, waiter, now: NOW, deadline }, NO_LIMIT, END).unwrap().entry
}

/// Adds a request of `waiter` for lock "k" of database 0. Its owner is its number.
fn join(waiting: &mut Locks, waiter: u64, deadline: Option<UnixMs>) -> EntryId {
    join_as(waiting, 0, &waiter.to_string(), waiter, deadline)
}

fn queue(waiting: &Locks) -> RecordId {
    waiting.record_of(0, b"k").unwrap()
}

fn next(waiting: &mut Locks) -> Option<u64> {
    let queue = waiting.record_of(0, b"k")?;
    waiting.grant_first(queue, END).map(|grant| grant.waiter.0)
}

#[test]
fn waiters_are_granted_in_their_order() {
    let mut waiting = Locks::new();
    for waiter in 1..=3 {
        join(&mut waiting, waiter, None);
    }
    assert_eq!(
        [next(&mut waiting), next(&mut waiting), next(&mut waiting), next(&mut waiting)],
        [Some(1), Some(2), Some(3), None]
    );
}

#[test]
fn withdrawn_request_is_skipped() {
    for withdrawn in 1..=3 {
        let mut waiting = Locks::new();
        let requests: Vec<_> = (1..=3).map(|waiter| join(&mut waiting, waiter, None)).collect();
        assert_eq!(waiting.withdraw(requests[withdrawn as usize - 1], None, END), Some(WaiterId(withdrawn)));
        assert_eq!(waiting.withdraw(requests[withdrawn as usize - 1], None, END), None);
        let served: Vec<_> = std::iter::from_fn(|| next(&mut waiting)).collect();
        let expected: Vec<_> = (1..=3).filter(|&waiter| waiter != withdrawn).collect();
        assert_eq!(served, expected);
    }
}

#[test]
fn lock_without_waiters_uses_no_memory() {
    let mut waiting = Locks::new();
    let request = join(&mut waiting, 1, Some(NOW + 5));
    let queue = queue(&waiting);
    waiting.review_at_lease_end(queue, Some(NOW + 9));
    // The queue and its name, the entry, its turn and its owner, its deadline and the review with their places.
    assert_eq!(waiting.entry_count(), 9);
    waiting.withdraw(request, None, END);
    assert!(waiting.has_no_entries() && waiting.entry_count() == 0);
    assert_eq!(waiting.record_of(0, b"k"), None);
    assert_eq!(waiting.next_due(true), None);
    assert!(waiting.records.is_empty() && waiting.entries.is_empty());
}

#[test]
fn key_in_other_database_is_another_lock() {
    let mut waiting = Locks::new();
    join(&mut waiting, 1, None);
    assert_eq!(waiting.record_of(1, b"k"), None);
    join_as(&mut waiting, 1, "2", 2, None);
    assert_eq!(next(&mut waiting), Some(1));
    assert_eq!(waiting.waiter_count(), 1);
}

#[test]
fn review_comes_one_ms_after_lease_end() {
    let mut waiting = Locks::new();
    join(&mut waiting, 1, None);
    let queue = queue(&waiting);
    waiting.review_at_lease_end(queue, Some(NOW + 10));
    assert_eq!(waiting.next_task(NOW + 10, true), None);
    assert_eq!(waiting.next_task(NOW + 11, true), Some(Task::Review(queue)));
    assert_eq!(waiting.next_task(NOW + 11, true), None);
}

#[test]
fn review_comes_before_time_outs_of_its_lock() {
    let mut waiting = Locks::new();
    let second = join(&mut waiting, 1, Some(NOW + 20));
    let first = join(&mut waiting, 2, Some(NOW + 10));
    let queue = queue(&waiting);
    waiting.review_at(queue, NOW + 20);
    let due_at = |waiting: &mut Locks, now| waiting.next_task(now, true);
    assert_eq!(due_at(&mut waiting, NOW + 11), Some(Task::TimedOut(first)));
    assert_eq!(due_at(&mut waiting, NOW + 11), Some(Task::TimedOut(first)), "until it is withdrawn");
    assert_eq!(waiting.withdraw(first, None, END), Some(WaiterId(2)));
    assert_eq!(due_at(&mut waiting, NOW + 21), Some(Task::Review(queue)));
    assert_eq!(due_at(&mut waiting, NOW + 21), Some(Task::TimedOut(second)));
    assert_eq!(waiting.withdraw(second, None, END), Some(WaiterId(1)));
    assert_eq!(due_at(&mut waiting, NOW + 99), None);
}

#[test]
fn read_only_filter_yields_no_writes() {
    let mut waiting = Locks::new();
    let request = join(&mut waiting, 1, Some(NOW + 20));
    join(&mut waiting, 2, None);
    let queue = queue(&waiting);
    waiting.review_soon(queue, Cause::Delete);
    assert_eq!(waiting.next_due(false), Some(NOW + 21));
    assert_eq!(waiting.next_task(NOW + 30, false), Some(Task::TimedOut(request)));
    waiting.withdraw(request, None, END);
    assert_eq!(waiting.next_task(NOW + 30, false), None);
    assert_eq!(waiting.next_task(NOW + 30, true), Some(Task::Review(queue)));
}

#[test]
fn postponed_review_keeps_its_cause() {
    let mut waiting = Locks::new();
    join(&mut waiting, 1, None);
    let queue = queue(&waiting);
    waiting.review_soon(queue, Cause::Delete);
    waiting.review_at(queue, NOW + 20);
    assert_eq!(waiting.cause_of(queue), Cause::Delete);
}

#[test]
fn review_of_all_finds_each_contended_lock_once() {
    let mut waiting = Locks::new();
    let requests: Vec<_> = (0..4).map(|db| join_as(&mut waiting, db, "x", db as u64, None)).collect();
    waiting.withdraw(requests[2], Some(NOW + 50), END);
    waiting.review_all();
    assert_eq!(waiting.next_due(true), Some(UnixMs::MIN));
    assert_eq!(waiting.next_task(NOW, false), None, "nothing may be written now");
    for db in 0..4 {
        let queue = waiting.record_of(db, b"k").unwrap();
        let expected = if db == 2 { Task::Done } else { Task::Review(queue) };
        assert_eq!(waiting.next_task(NOW, true), Some(expected));
    }
    assert_eq!(waiting.next_task(NOW, true), None);
    assert_eq!(waiting.next_due(true), Some(NOW + 50));
}

#[test]
fn waiters_are_listed_in_queue_order() {
    let mut waiting = Locks::new();
    join(&mut waiting, 1, Some(NOW + 5));
    join(&mut waiting, 2, None);
    let seen: Vec<_> = waiting.waiters(queue(&waiting)).map(|waiter| (waiter.id.0, waiter.deadline)).collect();
    assert_eq!(seen, [(1, Some(NOW + 5)), (2, None)]);
    assert_eq!(waiting.waiter_count_of(queue(&waiting)), 2);
}

/// The waiters in the order of their turns.
fn order(waiting: &Locks) -> Vec<u64> {
    waiting.record_of(0, b"k").into_iter().flat_map(|queue| waiting.waiters(queue)).map(|waiter| waiter.id.0).collect()
}

#[test]
fn later_request_of_owner_takes_place() {
    let mut waiting = Locks::new();
    join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    let lease = Lease::from_ms(20);
    let claim = Claim { lease, ..claim("a") };
    let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(3), now: NOW + 5, deadline: Some(NOW + 9) };
    let joined = waiting.join(join, 2, END).unwrap();
    assert_eq!((joined.rejoined, joined.replaced), (true, Some(WaiterId(1))), "it adds no waiter");
    assert_eq!(order(&waiting), [3, 2]);
    assert_eq!(waiting.next_due(false), Some(NOW + 10));
    let queue = queue(&waiting);
    let grant = waiting.grant_first(queue, END).unwrap();
    assert_eq!((grant.claim.lease, grant.since), (lease, NOW));
    assert_eq!(next(&mut waiting), Some(2));
    assert!(waiting.has_no_entries() && waiting.entry_count() == 0);
}

#[test]
fn request_for_other_kind_goes_to_end() {
    for is_attached in [true, false] {
        let mut waiting = Locks::new();
        let first = join_as(&mut waiting, 0, "a", 1, None);
        join_as(&mut waiting, 0, "b", 2, None);
        if !is_attached {
            waiting.withdraw(first, Some(NOW + 50), END);
        }
        let claim = Claim { kind: Kind::Reentrant, ..claim("a") };
        let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(3), now: NOW, deadline: None };
        let joined = waiting.join(join, NO_LIMIT, END).unwrap();
        assert_eq!((joined.rejoined, joined.replaced), (is_attached, is_attached.then_some(WaiterId(1))));
        assert_eq!((order(&waiting), waiting.entries.len()), (vec![2, 3], 2));
    }
}

#[test]
fn kept_entry_regains_its_turn() {
    let mut waiting = Locks::new();
    let first = join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    waiting.withdraw(first, Some(NOW + 50), END);
    assert_eq!(order(&waiting), [2]);
    assert_eq!(waiting.waiter_count_of(queue(&waiting)), 1);
    join_as(&mut waiting, 0, "a", 3, None);
    assert_eq!(order(&waiting), [3, 2]);
    assert_eq!(waiting.next_due(true), None, "an attached entry is not dropped");
}

#[test]
fn detached_entry_is_skipped_and_dropped_in_time() {
    let mut waiting = Locks::new();
    let first = join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    waiting.withdraw(first, Some(NOW + 50), END);
    assert_eq!(next(&mut waiting), Some(2));
    assert!(!waiting.has_no_entries());
    assert_eq!(waiting.next_task(NOW + 49, true), None);
    assert_eq!(waiting.next_task(NOW + 50, false), Some(Task::Done));
    assert!(waiting.has_no_entries());
    assert_eq!(waiting.record_of(0, b"k"), None);
}

#[test]
fn timed_out_request_keeps_entry_for_grace_time() {
    let mut waiting = Locks::new();
    let request = join_as(&mut waiting, 0, "a", 1, Some(NOW + 10));
    assert_eq!(waiting.next_task(NOW + 11, true), Some(Task::TimedOut(request)));
    waiting.withdraw(request, Some(NOW + 60), END);
    join_as(&mut waiting, 0, "b", 2, None);
    join_as(&mut waiting, 0, "a", 3, None);
    assert_eq!(order(&waiting), [3, 2]);
}

#[test]
fn detached_entries_cause_no_review() {
    let mut waiting = Locks::new();
    let request = join_as(&mut waiting, 0, "a", 1, None);
    let queue = queue(&waiting);
    waiting.review_at_lease_end(queue, Some(NOW + 5));
    waiting.withdraw(request, Some(NOW + 50), END);
    waiting.review_soon(queue, Cause::Delete);
    assert_eq!(waiting.next_due(true), Some(NOW + 50));
    assert_eq!(waiting.grant_first(queue, END), None);
}

#[test]
fn detached_entry_is_dropped_at_waiter_limit() {
    let mut waiting = Locks::new();
    let join = |waiting: &mut Locks, owner: &str, waiter| {
        let (claim, waiter) = (claim(owner), WaiterId(waiter));
        waiting.join(JoinRequest { db: 0, key: b"k", claim, waiter, now: NOW, deadline: None }, 2, END)
    };
    let one = join(&mut waiting, "a", 1).unwrap().entry;
    let two = join(&mut waiting, "b", 2).unwrap().entry;
    assert_eq!(join(&mut waiting, "c", 3), None);
    waiting.withdraw(two, Some(NOW + 40), END);
    waiting.withdraw(one, Some(NOW + 50), END);
    assert!(join(&mut waiting, "c", 3).is_some(), "the entry of b, which ends first, is dropped");
    assert_eq!(waiting.entries.len(), 2);
    assert!(join(&mut waiting, "a", 4).is_some(), "the entry of a is kept");
    assert_eq!(order(&waiting), [4, 3]);
    assert_eq!(join(&mut waiting, "d", 5), None);
}

#[test]
fn withdrawn_owner_has_no_entry() {
    let mut waiting = Locks::new();
    let detached = join_as(&mut waiting, 0, "a", 1, None);
    waiting.withdraw(detached, Some(NOW + 50), END);
    join_as(&mut waiting, 0, "b", 2, None);
    assert_eq!(waiting.withdraw_owner(0, b"k", b"a", END), Some(None));
    assert_eq!(waiting.withdraw_owner(0, b"k", b"b", END), Some(Some(WaiterId(2))));
    assert_eq!(waiting.withdraw_owner(0, b"k", b"b", END), None);
    assert!(waiting.has_no_entries());
}

#[test]
fn revoked_grant_keeps_its_turn() {
    let mut waiting = Locks::new();
    join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    let queue = queue(&waiting);
    let grant = waiting.grant_first(queue, END).unwrap();
    waiting.restore(grant, NOW + 50);
    assert_eq!(order(&waiting), [2]);
    join_as(&mut waiting, 0, "a", 3, None);
    assert_eq!(order(&waiting), [3, 2]);
}

#[test]
fn restored_grant_regains_turn_of_waiting_claim() {
    let mut waiting = Locks::new();
    join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    let queue = queue(&waiting);
    let grant = waiting.grant_first(queue, END).unwrap();
    join_as(&mut waiting, 0, "a", 3, None);
    assert_eq!(order(&waiting), [2, 3]);
    waiting.restore(grant, NOW + 50);
    assert_eq!(order(&waiting), [3, 2]);
}

#[test]
fn all_detached_entries_are_dropped_one_by_one() {
    let mut waiting = Locks::new();
    for owner in ["a", "b"] {
        let request = join_as(&mut waiting, 0, owner, 1, None);
        waiting.withdraw(request, Some(NOW + 50), END);
    }
    join_as(&mut waiting, 0, "c", 2, None);
    waiting.drop_detached_entries();
    assert_eq!(order(&waiting), [2]);
    for _ in ["a", "b"] {
        assert_eq!(waiting.next_due(false), Some(UnixMs::MIN));
        assert_eq!(waiting.next_task(NOW, false), Some(Task::Done));
    }
    assert_eq!(waiting.next_due(true), None);
    assert_eq!(waiting.next_task(NOW, true), None);
}

#[test]
fn restored_grant_leaves_other_kind_at_end() {
    let mut waiting = Locks::new();
    join_as(&mut waiting, 0, "a", 1, None);
    join_as(&mut waiting, 0, "b", 2, None);
    let queue = queue(&waiting);
    let grant = waiting.grant_first(queue, END).unwrap();
    let claim = Claim { kind: Kind::Shared, ..claim("a") };
    let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(3), now: NOW, deadline: None };
    waiting.join(join, NO_LIMIT, END).unwrap();
    waiting.restore(grant, NOW + 50);
    assert_eq!(order(&waiting), [2, 3]);
}

#[test]
fn origin_of_entry_is_its_lock_and_claim() {
    let mut waiting = Locks::new();
    let entry = join_as(&mut waiting, 3, "a", 1, None);
    let (queue, claim) = waiting.origin_of(entry).unwrap();
    assert_eq!((queue.db(), &*queue.key, &*claim.owner), (3, b"k".as_slice(), b"a".as_slice()));
    assert_eq!(waiting.request_of(3, b"k", b"a").map(|request| request.waiter), Some(WaiterId(1)));
    assert!(waiting.request_of(3, b"k", b"b").is_none());
    waiting.withdraw(entry, None, END);
    assert!(waiting.origin_of(entry).is_none());
}

#[test]
fn repeated_review_of_all_delays_no_due_work() {
    let mut waiting = Locks::new();
    let key = |number: u64| number.to_string().into_bytes();
    for number in 0..50 {
        let join = JoinRequest {
            db: 0,
            key: &key(number),
            claim: claim("a"),
            waiter: WaiterId(number),
            now: NOW,
            deadline: None,
        };
        waiting.join(join, usize::MAX, END);
    }
    let late = join_as(&mut waiting, 0, "late", 99, Some(NOW));
    let ended = waiting.record_of(0, &key(7)).unwrap();
    waiting.review_at_lease_end(ended, Some(NOW));
    let mut due = Vec::new();
    for _ in 0..12 {
        waiting.review_all();
        due.push(waiting.next_task(NOW + 1, true).unwrap());
    }
    assert!(due.contains(&Task::Review(ended)), "{due:?}");
    let of_late = due.iter().position(|it| *it == Task::Review(queue(&waiting)));
    let timed_out = due.iter().position(|it| *it == Task::TimedOut(late));
    assert!(of_late.is_some() && of_late < timed_out, "its lock may be free, so the review comes first: {due:?}");
}
