//! Rounds over all locks, and walks over those who wait for one.

use super::*;

#[test]
fn a_round_finds_every_lock_once() {
    let mut waiting = WaitQueues::new();
    assert!(!waiting.is_in_round());
    let queues = [1, 2, 3].map(|db| {
        join_as(&mut waiting, db, "a", db as u64, None);
        waiting.queue_of(db, b"k")
    });
    waiting.begin_round();
    assert!(waiting.is_in_round());
    assert_eq!([(); 4].map(|()| waiting.next_in_round()), [queues[0], queues[1], queues[2], None]);
    assert!(!waiting.is_in_round());
}

#[test]
fn those_who_wait_for_a_lost_lock_are_found_place_by_place() {
    let mut waiting = WaitQueues::new();
    for (owner, waiter) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        join_as(&mut waiting, 0, owner, waiter, None);
    }
    join_as(&mut waiting, 1, "other", 5, None);
    assert!(!waiting.has_lost() && waiting.next_lost().is_none());
    waiting.lose(queue(&waiting));
    for place in [&[3, 1][..], &[2], &[4], &[]] {
        assert!(waiting.has_lost());
        let found = waiting.next_lost().unwrap();
        assert_eq!(found, place.iter().copied().map(WaiterId).collect::<Vec<_>>());
    }
    assert!(!waiting.has_lost() && waiting.next_lost().is_none());
}

#[test]
fn a_walk_over_those_who_have_left_is_over() {
    let mut waiting = WaitQueues::new();
    let request = join(&mut waiting, 1, None);
    waiting.lose(queue(&waiting));
    waiting.leave(request, None);
    join_as(&mut waiting, 1, "other", 2, None);
    assert_eq!(waiting.next_lost(), Some(Vec::new()));
    assert!(!waiting.has_lost());
}

#[test]
fn a_review_of_all_comes_to_its_end_though_something_is_due_all_the_while() {
    let mut waiting = WaitQueues::new();
    let late = join(&mut waiting, 1, Some(NOW));
    join_as(&mut waiting, 1, "b", 2, None);
    let [first, second] = [0, 1].map(|db| Due::Review(waiting.queue_of(db, b"k").unwrap()));
    waiting.review_all();
    let due = [(); 5].map(|()| waiting.pop_due(NOW + 1, DueFilter::All).unwrap());
    let timed_out = Due::TimedOut(late);
    assert_eq!(due, [first, timed_out, second, timed_out, timed_out], "until it leaves");
}

#[test]
fn so_many_copies_share_a_place_and_no_more() {
    let mut waiting = WaitQueues::new();
    let has_room = |waiting: &WaitQueues, owner: &[u8]| waiting.has_room_for_copy(0, b"k", Kind::Mutex, owner);
    for waiter in 0..MAX_COPIES as u64 {
        assert!(has_room(&waiting, b"a"), "{waiter}");
        join_as(&mut waiting, 0, "a", waiter, None);
    }
    assert!(!has_room(&waiting, b"a") && has_room(&waiting, b"b"));
}

#[test]
fn who_is_granted_the_lock_past_the_line_keeps_no_place_that_is_away() {
    let mut waiting = WaitQueues::new();
    let [away, _] = [1, 2].map(|waiter| join(&mut waiting, waiter, None));
    assert_eq!(&*waiting.first(queue(&waiting)).unwrap().owner, b"1");
    waiting.leave(away, Some(NOW + 10));
    let places = |waiting: &WaitQueues| waiting.places.len();
    waiting.drop_away_place(0, b"k", Kind::Mutex, b"2");
    assert_eq!(places(&waiting), 2, "who stands in line stays there");
    waiting.drop_away_place(0, b"k", Kind::Mutex, b"1");
    assert_eq!(places(&waiting), 1);
    assert_eq!(&*waiting.first(queue(&waiting)).unwrap().owner, b"2");
}

#[test]
fn when_the_turn_comes_to_a_share_its_lock_is_reviewed() {
    let mut waiting = WaitQueues::new();
    let [first, second] = [1, 2].map(|waiter| join(&mut waiting, waiter, None));
    let [share, _] = ["c", "d"].map(|owner| join_share(&mut waiting, owner));
    waiting.leave(first, None);
    assert_eq!(waiting.next_due(DueFilter::All), None, "another wants the lock alone");
    for leaver in [second, share] {
        waiting.leave(leaver, None);
        assert_eq!(waiting.pop_due(NOW, DueFilter::All), Some(Due::Review(queue(&waiting))));
    }
    assert_eq!(waiting.pop_due(NOW, DueFilter::All), None);

    let mut waiting = WaitQueues::new();
    let [share, _] = ["c", "d"].map(|owner| join_share(&mut waiting, owner));
    waiting.leave(share, None);
    assert_eq!(waiting.pop_due(NOW, DueFilter::All), Some(Due::Review(queue(&waiting))), "only shares are waited for");
}

fn join_share(waiting: &mut WaitQueues, owner: &str) -> RequestId {
    let claim = Claim { kind: Kind::Shared, ..claim(owner) };
    let join = Join { db: 0, key: b"k", claim, waiter: WaiterId(3), now: NOW, deadline: None };
    waiting.join(join, NO_LIMIT).unwrap().request
}

/// Whose names look alike to the table of claims are told from each other, too.
#[test]
fn of_very_many_each_withdraws_alone() {
    let mut waiting = WaitQueues::new();
    for waiter in 0..500 {
        join_as(&mut waiting, waiter as i32 % 2, &waiter.to_string(), waiter, None);
    }
    for waiter in 0..500 {
        let withdrawn = waiting.withdraw(waiter as i32 % 2, b"k", waiter.to_string().as_bytes(), Some(Kind::Shared));
        assert_eq!(withdrawn, Some(vec![WaiterId(waiter)]));
    }
}
