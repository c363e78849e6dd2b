//! Sweeps over all locks, and aborted waits.

use super::*;

#[test]
fn slot_of_every_lock_is_checked_once() {
    let mut waiting = Locks::new();
    let queues = [1, 2, 3].map(|db| {
        join_as(&mut waiting, db, "a", db as u64, None);
        waiting.record_of(db, b"k").map(Task::CheckSlot)
    });
    assert_eq!(waiting.next_due(false), None);
    waiting.check_slots();
    assert_eq!(waiting.next_due(false), Some(UnixMs::MIN));
    assert_eq!([(); 4].map(|()| waiting.next_task(NOW, false)), [queues[0], queues[1], queues[2], None]);
    assert_eq!(waiting.next_due(false), None);
}

#[test]
fn aborted_waiters_are_returned_in_order() {
    let mut waiting = Locks::new();
    for (owner, waiter) in [("a", 1), ("b", 2), ("c", 4)] {
        join_as(&mut waiting, 0, owner, waiter, None);
    }
    join_as(&mut waiting, 1, "other", 5, None);
    assert_eq!(waiting.next_task(NOW, false), None);
    waiting.abort(queue(&waiting));
    for waiter in [Some(1), Some(2), Some(4), None] {
        assert_eq!(waiting.next_due(false), Some(UnixMs::MIN));
        let expected = waiter.map_or(Task::Done, |waiter| Task::Aborted(WaiterId(waiter)));
        assert_eq!(waiting.next_task(NOW, false), Some(expected));
    }
    assert_eq!(waiting.next_task(NOW, false), None);
}

#[test]
fn abort_of_withdrawn_waiters_ends() {
    let mut waiting = Locks::new();
    let request = join(&mut waiting, 1, None);
    waiting.abort(queue(&waiting));
    waiting.withdraw(request, None, END);
    join_as(&mut waiting, 1, "other", 2, None);
    assert_eq!([(); 2].map(|()| waiting.next_task(NOW, false)), [Some(Task::Done), None]);
}

#[test]
fn review_of_all_ends_while_work_is_due() {
    let mut waiting = Locks::new();
    let late = join(&mut waiting, 1, Some(NOW));
    join_as(&mut waiting, 1, "b", 2, None);
    let [first, second] = [0, 1].map(|db| Task::Review(waiting.record_of(db, b"k").unwrap()));
    waiting.review_all();
    let due = [(); 5].map(|()| waiting.next_task(NOW + 1, true).unwrap());
    let timed_out = Task::TimedOut(late);
    assert_eq!(due, [first, timed_out, second, timed_out, timed_out], "until it is withdrawn");
}

#[test]
fn review_of_all_keeps_cause_of_immediate_review() {
    let mut waiting = Locks::new();
    [1, 2].into_iter().for_each(|waiter| _ = join(&mut waiting, waiter, None));
    let queue = queue(&waiting);
    waiting.review_at_lease_end(queue, Some(NOW + 20));
    waiting.review_soon(queue, Cause::Expiry);
    waiting.review_all();
    assert_eq!(waiting.next_task(NOW, true), Some(Task::Review(queue)));
    assert_eq!(waiting.cause_of(queue), Cause::Expiry);
    assert_eq!(waiting.next_task(NOW, true), Some(Task::Review(queue)), "the immediate review");
    waiting.review_at_lease_end(queue, Some(NOW + 20));
    waiting.review_all();
    assert_eq!(waiting.next_task(NOW, true), Some(Task::Review(queue)));
    assert_eq!(waiting.cause_of(queue), Cause::Other, "an event that is not known");
}

#[test]
fn grant_past_queue_drops_detached_entry() {
    let mut waiting = Locks::new();
    let [detached, _] = [1, 2].map(|waiter| join(&mut waiting, waiter, None));
    assert_eq!(&*waiting.first(queue(&waiting)).unwrap().owner, b"1");
    waiting.withdraw(detached, Some(NOW + 10), END);
    let entries = |waiting: &Locks| waiting.entries.len();
    waiting.drop_detached_entry(0, b"k", b"2");
    assert_eq!(entries(&waiting), 2, "an attached entry is kept");
    waiting.drop_detached_entry(0, b"k", b"1");
    assert_eq!(entries(&waiting), 1);
    assert_eq!(&*waiting.first(queue(&waiting)).unwrap().owner, b"2");
}

#[test]
fn share_becoming_first_causes_review() {
    let mut waiting = Locks::new();
    let [first, second] = [1, 2].map(|waiter| join(&mut waiting, waiter, None));
    let [share, _] = ["c", "d"].map(|owner| join_share(&mut waiting, owner));
    waiting.withdraw(first, None, END);
    assert_eq!(waiting.next_due(true), None, "the first waiter wants the lock alone");
    for withdrawn in [second, share] {
        waiting.withdraw(withdrawn, None, END);
        assert_eq!(waiting.next_task(NOW, true), Some(Task::Review(queue(&waiting))));
    }
    assert_eq!(waiting.next_task(NOW, true), None);

    let mut waiting = Locks::new();
    let [share, _] = ["c", "d"].map(|owner| join_share(&mut waiting, owner));
    waiting.withdraw(share, None, END);
    assert_eq!(waiting.next_task(NOW, true), Some(Task::Review(queue(&waiting))), "all waiters want shares");
}

fn join_share(waiting: &mut Locks, owner: &str) -> EntryId {
    let claim = Claim { kind: Kind::Shared, ..claim(owner) };
    let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(3), now: NOW, deadline: None };
    waiting.join(join, NO_LIMIT, END).unwrap().entry
}

/// With this many owners, their table has collisions.
#[test]
fn each_of_many_owners_withdraws_alone() {
    let mut waiting = Locks::new();
    for waiter in 0..500 {
        join_as(&mut waiting, waiter as i32 % 2, &waiter.to_string(), waiter, None);
    }
    for waiter in 0..500 {
        let withdrawn = waiting.withdraw_owner(waiter as i32 % 2, b"k", waiter.to_string().as_bytes(), END);
        assert_eq!(withdrawn, Some(Some(WaiterId(waiter))));
    }
}
