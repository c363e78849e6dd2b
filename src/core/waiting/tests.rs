use super::*;

const NOW: UnixMs = 1_000;

fn claim(owner: &str) -> Claim {
    Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None }
}

/// Lets `owner` wait for lock "k" of database 0; its connection has the number `connection`.
fn join(room: &mut WaitingRoom, connection: u64, deadline: Option<UnixMs>) -> RequestId {
    room.join((0, b"k"), claim("x"), ConnectionId(connection), NOW, deadline).unwrap()
}

fn queue(room: &WaitingRoom) -> QueueId {
    room.queue_of(0, b"k").unwrap()
}

fn next(room: &mut WaitingRoom) -> Option<u64> {
    let queue = room.queue_of(0, b"k")?;
    room.serve_first(queue).map(|grant| grant.connection.0)
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let mut room = WaitingRoom::new();
    for connection in 1..=3 {
        join(&mut room, connection, None);
    }
    assert_eq!([next(&mut room), next(&mut room), next(&mut room), next(&mut room)], [Some(1), Some(2), Some(3), None]);
}

#[test]
fn one_who_leaves_is_passed_over_wherever_it_stood() {
    for leaver in 1..=3 {
        let mut room = WaitingRoom::new();
        let requests: Vec<_> = (1..=3).map(|connection| join(&mut room, connection, None)).collect();
        assert_eq!(room.leave(requests[leaver as usize - 1]), Some(ConnectionId(leaver)));
        assert_eq!(room.leave(requests[leaver as usize - 1]), None);
        let served: Vec<_> = std::iter::from_fn(|| next(&mut room)).collect();
        let expected: Vec<_> = (1..=3).filter(|&connection| connection != leaver).collect();
        assert_eq!(served, expected);
    }
}

#[test]
fn a_lock_nobody_waits_for_leaves_nothing_behind() {
    let mut room = WaitingRoom::new();
    let request = join(&mut room, 1, Some(NOW + 5));
    let queue = queue(&room);
    room.review_after(queue, Some(NOW + 9));
    room.leave(request);
    assert!(room.is_empty());
    assert_eq!(room.queue_of(0, b"k"), None);
    assert_eq!(room.next_due(Timely::All), None);
    assert!(room.queues.is_empty() && room.places.is_empty());
}

#[test]
fn the_same_key_in_another_database_is_another_lock() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, None);
    assert_eq!(room.queue_of(1, b"k"), None);
    room.join((1, b"k"), claim("y"), ConnectionId(2), NOW, None).unwrap();
    assert_eq!(next(&mut room), Some(1));
    assert_eq!(room.waiting(), 1);
}

#[test]
fn a_lease_is_reviewed_one_millisecond_after_its_end_because_the_server_keeps_the_key_until_then() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, None);
    let queue = queue(&room);
    room.review_after(queue, Some(NOW + 10));
    assert_eq!(room.pop_due(NOW + 10, Timely::All), None);
    assert_eq!(room.pop_due(NOW + 11, Timely::All), Some(Due::Review(queue)));
    assert_eq!(room.pop_due(NOW + 11, Timely::All), None);
}

#[test]
fn what_falls_due_first_comes_first_and_a_review_goes_before_a_deadline() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, Some(NOW + 20));
    join(&mut room, 2, Some(NOW + 10));
    let queue = queue(&room);
    room.review_at(queue, NOW + 20);
    let late = NOW + 99;
    assert_eq!(room.pop_due(late, Timely::All), Some(Due::TimedOut(ConnectionId(2))));
    assert_eq!(room.pop_due(late, Timely::All), Some(Due::Review(queue)));
    assert_eq!(room.pop_due(late, Timely::All), Some(Due::TimedOut(ConnectionId(1))));
    assert_eq!(room.pop_due(late, Timely::All), None);
}

#[test]
fn while_nothing_may_be_written_only_deadlines_fall_due() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, Some(NOW + 20));
    join(&mut room, 2, None);
    let queue = queue(&room);
    room.review_soon(queue, Cause::Delete);
    assert_eq!(room.next_due(Timely::DeadlinesOnly), Some(NOW + 21));
    assert_eq!(room.pop_due(NOW + 30, Timely::DeadlinesOnly), Some(Due::TimedOut(ConnectionId(1))));
    assert_eq!(room.pop_due(NOW + 30, Timely::DeadlinesOnly), None);
    assert_eq!(room.pop_due(NOW + 30, Timely::All), Some(Due::Review(queue)));
}

#[test]
fn a_review_keeps_its_cause_while_it_is_put_off() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, None);
    let queue = queue(&room);
    room.review_soon(queue, Cause::Delete);
    room.review_at(queue, NOW + 20);
    assert_eq!(room.cause_of(queue), Cause::Delete);
}

#[test]
fn a_flush_of_one_database_reviews_the_locks_of_that_one() {
    let mut room = WaitingRoom::new();
    for db in 0..3 {
        room.join((db, b"k"), claim("x"), ConnectionId(db as u64), NOW, None).unwrap();
    }
    room.review_all(Some(1));
    assert_eq!(room.pop_due(NOW, Timely::All), room.queue_of(1, b"k").map(Due::Review));
    assert_eq!(room.pop_due(NOW, Timely::All), None);
    room.review_all(None);
    assert_eq!(std::iter::from_fn(|| room.pop_due(NOW, Timely::All)).count(), 3);
}

#[test]
fn onlookers_see_the_line_in_its_order() {
    let mut room = WaitingRoom::new();
    join(&mut room, 1, Some(NOW + 5));
    join(&mut room, 2, None);
    let seen: Vec<_> = room.waiters(queue(&room)).map(|waiter| (waiter.connection.0, waiter.deadline)).collect();
    assert_eq!(seen, [(1, Some(NOW + 5)), (2, None)]);
    assert_eq!(room.waiting_for(queue(&room)), 2);
}
