//! Locks take turns: the due work of one lock does not delay the others.

use proptest::prelude::*;

use super::*;

#[test]
fn time_out_does_not_wait_for_other_lock() {
    let mut waiting = Locks::new();
    (0..100).for_each(|waiter| _ = join(&mut waiting, waiter, Some(NOW + 10)));
    let other = join_as(&mut waiting, 1, "other", 100, Some(NOW + 11));
    for popped in 0..3 {
        let Some(Task::TimedOut(request)) = waiting.next_task(NOW + 20, true) else { panic!("no time-out") };
        waiting.withdraw(request, None, END);
        if request == other {
            assert!(popped > 0, "the earliest deadline comes first");
            return;
        }
    }
    panic!("the request for the other lock has not timed out");
}

/// The waiters of a lock leave one by one, and it is to be reviewed after each. A lock that became free has its turn, too, and one
/// whose lease has ended.
#[test]
fn repeated_review_delays_no_other_lock() {
    let mut waiting = Locks::new();
    let mut readers: Vec<_> = (0..50)
        .map(|waiter| {
            let claim = Claim { kind: Kind::Shared, ..claim(&format!("r{waiter}")) };
            let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(waiter), now: NOW, deadline: None };
            waiting.join(join, NO_LIMIT, END).unwrap().entry
        })
        .collect();
    let queue_in = |waiting: &mut Locks, db| {
        join_as(waiting, db, "other", db as u64 + 100, None);
        waiting.record_of(db, b"k").unwrap()
    };
    let [long, freed, expired] =
        [waiting.record_of(0, b"k").unwrap(), queue_in(&mut waiting, 1), queue_in(&mut waiting, 2)];
    waiting.review_at_lease_end(expired, Some(NOW - 1));
    let mut reviewed = Vec::new();
    for number in 0..20 {
        waiting.withdraw(readers.remove(0), Some(NOW + 10_000), END);
        if number == 5 {
            waiting.review_soon(freed, Cause::Delete);
        }
        match waiting.next_task(NOW, true) {
            Some(Task::Review(queue)) => reviewed.push(queue),
            due => panic!("{due:?}"),
        }
    }
    assert_eq!(reviewed[..8].iter().filter(|&&queue| queue == expired).count(), 1, "{reviewed:?}");
    assert_eq!(reviewed[5..8].iter().filter(|&&queue| queue == freed).count(), 1, "{reviewed:?}");
    assert_eq!(reviewed.iter().filter(|&&queue| queue == long).count(), 18);
}

#[test]
fn stopped_reviews_go_on_in_turn() {
    let mut waiting = Locks::new();
    let queues: Vec<_> = (0..3)
        .map(|db| {
            join_as(&mut waiting, db, "a", db as u64, None);
            waiting.record_of(db, b"k").unwrap()
        })
        .collect();
    for &queue in &queues {
        waiting.review_soon(queue, Cause::Release);
        waiting.review_in_turn(queue, Cause::Release);
        waiting.review_in_turn(queue, Cause::Other);
        waiting.review_soon(queue, Cause::Delete);
        waiting.review_at(queue, NOW + 50);
        assert!(!waiting.has_used_batch(queue));
        waiting.end_batch(queue);
        assert!(waiting.has_used_batch(queue));
        assert_eq!(waiting.cause_of(queue), Cause::Release);
    }
    assert_eq!(
        waiting.grant_first(queues[1], END).map(|grant| grant.waiter),
        Some(WaiterId(1)),
        "the queue is dropped"
    );
    assert_eq!(waiting.next_task(NOW, true), None, "they rest until the next run");
    assert_eq!(waiting.next_due(true), Some(UnixMs::MIN));
    waiting.begin_run();
    assert_eq!(waiting.next_task(NOW, false), None);
    let mut reviewed: Vec<_> = std::iter::from_fn(|| waiting.next_task(NOW, true)).collect();
    reviewed.sort_by_key(|task| format!("{task:?}"));
    assert_eq!(reviewed, [Task::Review(queues[0]), Task::Review(queues[2])]);
    assert!(!waiting.has_used_batch(queues[0]));
    assert_eq!((waiting.next_task(NOW, true), waiting.next_due(true)), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The timer is set to the time of the next due work. If that work were not popped, the server would never be idle.
    #[test]
    fn nothing_is_due_when_nothing_is_popped(steps in prop::collection::vec((0..12u8, 0..3u8, 0..20i64), 1..100)) {
        let (mut waiting, mut requests, mut now) = (Locks::new(), Vec::new(), NOW);
        for (number, (step, which, ms)) in (0..).zip(steps) {
            let queue = waiting.record_of(which.into(), b"k");
            let owner = (ms % 4).to_string();
            match step {
                0..4 => {
                    let deadline = Some(now + ms).filter(|_| step > 1);
                    let join = JoinRequest { db: which.into(), key: b"k", claim: claim(&owner), waiter: WaiterId(number), now, deadline };
                    requests.extend(waiting.join(join, 8, END).map(|joined| joined.entry));
                }
                4 => _ = requests.pop().and_then(|request| waiting.withdraw(request, Some(now + ms), END)),
                5 => _ = waiting.withdraw_owner(which.into(), b"k", owner.as_bytes(), END),
                6 => waiting.drop_detached_entries(),
                7 => waiting.review_all(),
                8 => queue.into_iter().for_each(|queue| waiting.review_soon(queue, Cause::Delete)),
                9 => queue.into_iter().for_each(|queue| waiting.review_in_turn(queue, Cause::Other)),
                10 => _ = queue.and_then(|queue| waiting.grant_first(queue, END)),
                _ => now += ms,
            }
            let may_write = which > 0;
            for pops in 0..200 {
                prop_assert!(pops < 150, "due work does not end");
                match waiting.next_task(now, may_write) {
                    Some(Task::TimedOut(request)) => _ = waiting.withdraw(request, Some(now + ms), END),
                    Some(_) => {}
                    None => break,
                }
            }
            waiting.check_invariants();
            let next = waiting.next_due(may_write);
            prop_assert!(next.is_none_or(|due| due > now), "busy after step {}", number);
        }
    }
}
