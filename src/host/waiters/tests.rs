use super::*;
use crate::core::{Claim, Kind, Turn};

const NEWS: &[u8] = b"news";

/// A request number of the core.
fn request(number: u64) -> RequestId {
    Id::from_bits(number)
}

/// A request that waits for a message, by its number.
fn notified(waiters: &mut Waiters, number: u64) -> EntryId {
    let id = waiters.insert_notified(7, None, NEWS).unwrap();
    waiters.set_wait_state(id, WaitState::Waiting(request(number)));
    id
}

/// A request whose client is blocked.
fn blocked(waiters: &mut Waiters, number: u64) -> EntryId {
    let id = waiters.insert_blocked(8, None).unwrap();
    waiters.set_wait_state(id, WaitState::Waiting(request(number)));
    id
}

#[test]
fn a_channel_is_kept_once_and_as_long_as_there_are_requests_for_it() {
    let mut waiters = Waiters::new();
    let [one, other] = [1, 2].map(|number| notified(&mut waiters, number));
    let [(first, _), (second, _)] = [one, other].map(|id| waiters.channel_of(id).unwrap());
    assert!(Rc::ptr_eq(&first, &second) && waiters.notified() == 2);
    waiters.remove(one);
    assert_eq!((waiters.notified(), waiters.channels.len()), (1, 1));
    waiters.remove(other);
    assert_eq!((waiters.notified(), waiters.channels.len()), (0, 0));
}

#[test]
fn those_are_lost_who_waited_then() {
    let mut waiters = Waiters::new();
    let early = [1, 2].map(|number| notified(&mut waiters, number));
    assert!(!waiters.has_left() && waiters.next_lost().is_none());
    waiters.lose_all();
    notified(&mut waiters, 3);
    assert!(waiters.has_left());
    assert_eq!([(); 4].map(|()| waiters.next_lost()), [Some(Some(early[0])), Some(Some(early[1])), Some(None), None]);
    assert!(!waiters.has_left());
}

#[test]
fn after_a_panic_every_wait_has_failed() {
    let mut waiters = Waiters::new();
    let (told, blocked) = (notified(&mut waiters, 1), blocked(&mut waiters, 2));
    let over = waiters.insert_notified(7, None, NEWS).unwrap();
    let untold = waiters.fail_all();
    assert_eq!(untold, [(Rc::from(NEWS), request(1))]);
    assert!(waiters.get(told).is_none() && waiters.get(over).is_none() && !waiters.has_messages());
    assert!(matches!(waiters.get(blocked).unwrap().wait_state(), WaitState::Failed));
    assert_eq!([waiters.next_lost(), waiters.next_lost()], [Some(Some(blocked)), None]);
}

fn grant(owner: &str) -> Grant {
    let claim = Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None, limit: None };
    Grant { db: 0, key: (*b"door").into(), claim, longest_lease: None, turn: Turn(7), since: 0, waiters: Vec::new() }
}

#[test]
fn a_grant_stands_if_one_of_its_clients_has_been_told() {
    for told in [[false, false], [false, true], [true, false]] {
        let mut waiters = Waiters::new();
        let delivery = waiters.begin_delivery(grant("a"), 2, Vec::new()).unwrap();
        assert_eq!(waiters.entry_count(), 2, "the delivery, and that it is the latest");
        assert_eq!(waiters.finish_delivery(delivery, told[0]), None, "the other may be");
        let untold = waiters.finish_delivery(delivery, told[1]);
        assert_eq!(untold.is_some(), told == [false, false], "{told:?}");
        assert!(!waiters.has_deliveries() && waiters.entry_count() == 0);
    }
}

#[test]
fn a_grant_stands_if_a_message_or_another_reply_tells_of_it() {
    let mut waiters = Waiters::new();
    let by_message = waiters.begin_delivery(grant("a"), 1, vec![7]).unwrap();
    assert_eq!(waiters.finish_delivery(by_message, false), None);
    let by_reply = waiters.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    waiters.mark_holder_told(Seat::whole(0, b"gate"));
    waiters.mark_holder_told(Seat::whole(0, b"door"));
    assert_eq!(waiters.finish_delivery(by_reply, false), None);
}

#[test]
fn what_is_on_its_way_of_a_lock_that_is_granted_anew_is_void() {
    let mut waiters = Waiters::new();
    let first = waiters.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    assert!(waiters.grant_unknown_to(8, first).is_some());
    let second = waiters.begin_delivery(grant("b"), 1, vec![7]).unwrap();
    assert!(waiters.grant_unknown_to(8, first).is_none());
    assert_eq!(waiters.finish_delivery(first, false), None);
    assert!(waiters.grant_unknown_to(8, second).is_some());
    assert!(waiters.grant_unknown_to(7, second).is_none(), "a message has told that connection");
    let third = waiters.begin_delivery(grant("c"), 1, Vec::new()).unwrap();
    waiters.supersede_delivery(Seat::whole(0, b"door"));
    assert_eq!(waiters.finish_delivery(third, false), None);
}
