use super::*;
use crate::core::{Claim, Kind, Turn, WaiterId};

const CLIENT: ClientId = 8;

fn grant(owner: &str) -> Grant {
    let claim = Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None, limit: None };
    Grant { db: 0, key: (*b"door").into(), claim, turn: Turn(7), since: 0, waiter: WaiterId(1) }
}

#[test]
fn grant_stands_if_client_was_notified() {
    for is_notified in [false, true] {
        let mut locks = Locks::new();
        let delivery = locks.begin_delivery(grant("a")).unwrap();
        assert_eq!(locks.entry_count(), 4, "the record and its name, the hold and the delivery");
        locks.finish_delivery(delivery, CLIENT, is_notified);
        assert_eq!(locks.has_revocations(), !is_notified);
        assert_eq!((locks.has_deliveries(), locks.is_empty()), (false, is_notified));
    }
}

#[test]
fn grant_stands_after_other_reply() {
    let mut locks = Locks::new();
    let delivery = locks.begin_delivery(grant("a")).unwrap();
    locks.mark_holder_notified(HoldKey::whole(0, b"gate"));
    locks.mark_holder_notified(HoldKey::whole(0, b"door"));
    locks.finish_delivery(delivery, CLIENT, false);
    assert!(!locks.has_revocations());
}

#[test]
fn superseded_delivery_is_void() {
    let mut locks = Locks::new();
    let first = locks.begin_delivery(grant("a")).unwrap();
    let second = locks.begin_delivery(grant("b")).unwrap();
    locks.finish_delivery(first, CLIENT, false);
    assert!(!locks.has_revocations());
    locks.supersede_delivery(HoldKey::whole(0, b"door"));
    locks.finish_delivery(second, CLIENT, false);
    assert!(!locks.has_revocations());
}
