use super::*;
use crate::core::{Claim, Kind, Turn};

fn grant(owner: &str) -> Grant {
    let claim = Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None, limit: None };
    Grant { db: 0, key: (*b"door").into(), claim, longest_lease: None, turn: Turn(7), since: 0, waiters: Vec::new() }
}

#[test]
fn grant_stands_if_one_client_was_notified() {
    for is_notified in [[false, false], [false, true], [true, false]] {
        let mut locks = Locks::new();
        let delivery = locks.begin_delivery(grant("a"), 2, Vec::new()).unwrap();
        assert_eq!(locks.entry_count(), 4, "the record and its name, the hold and the delivery");
        locks.finish_delivery(delivery, is_notified[0]);
        assert!(!locks.has_revocations(), "the other may be notified");
        locks.finish_delivery(delivery, is_notified[1]);
        assert_eq!(locks.has_revocations(), is_notified == [false, false], "{is_notified:?}");
        assert_eq!((locks.has_deliveries(), locks.is_empty()), (false, !locks.has_revocations()));
    }
}

#[test]
fn grant_stands_after_message_or_other_reply() {
    let mut locks = Locks::new();
    let by_message = locks.begin_delivery(grant("a"), 1, vec![7]).unwrap();
    locks.finish_delivery(by_message, false);
    assert!(!locks.has_revocations());
    let by_reply = locks.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    locks.mark_holder_notified(HoldKey::whole(0, b"gate"));
    locks.mark_holder_notified(HoldKey::whole(0, b"door"));
    locks.finish_delivery(by_reply, false);
    assert!(!locks.has_revocations());
}

#[test]
fn superseded_delivery_is_void() {
    let mut locks = Locks::new();
    let first = locks.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    assert!(locks.hold_unknown_to(8, first).is_some());
    let second = locks.begin_delivery(grant("b"), 1, vec![7]).unwrap();
    assert!(locks.hold_unknown_to(8, first).is_none());
    locks.finish_delivery(first, false);
    assert!(!locks.has_revocations());
    assert!(locks.hold_unknown_to(8, second).is_some());
    assert!(locks.hold_unknown_to(7, second).is_none(), "a message has notified that connection");
    let third = locks.begin_delivery(grant("c"), 1, Vec::new()).unwrap();
    locks.supersede_delivery(HoldKey::whole(0, b"door"));
    locks.finish_delivery(third, false);
    assert!(!locks.has_revocations());
}
