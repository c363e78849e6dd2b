//! Locks take turns: what is due for one of them does not delay the others.

use super::*;

#[test]
fn time_out_does_not_wait_for_those_of_another_lock() {
    let mut waiting = WaitQueues::new();
    (0..100).for_each(|waiter| _ = join(&mut waiting, waiter, Some(NOW + 10)));
    let other = join_as(&mut waiting, 1, "other", 100, Some(NOW + 11));
    for popped in 0..3 {
        let Some(Due::TimedOut(request)) = waiting.pop_due(NOW + 20, DueFilter::All) else { panic!("no time-out") };
        waiting.leave(request, None);
        if request == other {
            assert!(popped > 0, "the earliest comes first");
            return;
        }
    }
    panic!("the other lock's request waits");
}

#[test]
fn stopped_reviews_go_on_in_turn() {
    let mut waiting = WaitQueues::new();
    let queues: Vec<_> = (0..3)
        .map(|db| {
            join_as(&mut waiting, db, "a", db as u64, None);
            waiting.queue_of(db, b"k").unwrap()
        })
        .collect();
    for &queue in &queues {
        waiting.review_soon(queue, Cause::Release);
        waiting.review_in_turn(queue, Cause::Release);
        waiting.review_in_turn(queue, Cause::Other);
        waiting.review_soon(queue, Cause::Delete);
        waiting.end_batch(queue, 7);
        assert_eq!([7, 8].map(|run| waiting.must_wait_for_turn(queue, run)), [true, false]);
        assert_eq!(waiting.cause_of(queue), Cause::Release);
    }
    assert_eq!(waiting.grant_first(queues[1]).map(|grant| grant.waiters.len()), Some(1), "and the queue is dropped");
    assert_eq!(waiting.next_due(DueFilter::NoBacklog), None);
    assert_eq!(waiting.pop_due(NOW, DueFilter::NoBacklog), None);
    assert_eq!(waiting.next_due(DueFilter::All), Some(UnixMs::MIN));
    for queue in [queues[0], queues[2]] {
        assert_eq!(waiting.pop_due(NOW, DueFilter::All), Some(Due::Review(queue)));
        assert!(!waiting.must_wait_for_turn(queue, 7));
    }
    assert_eq!((waiting.pop_due(NOW, DueFilter::All), waiting.next_due(DueFilter::All)), (None, None));
}
