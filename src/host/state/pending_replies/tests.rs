use super::*;
use crate::core::{Claim, Kind, Turn};

const NEWS: &[u8] = b"news";

/// Returns a request of the core, by its number.
fn request(number: u64) -> RequestId {
    Id::from_bits(number)
}

/// Adds a request that waits for a message.
fn notified(pending: &mut PendingReplies, number: u64) -> PendingReplyId {
    let id = pending.insert_pubsub(7, None, NEWS).unwrap();
    pending.set_wait_state(id, WaitState::Waiting(request(number)));
    id
}

/// Adds a request whose client is blocked.
fn blocked(pending: &mut PendingReplies, number: u64) -> PendingReplyId {
    let id = pending.insert_blocked(8, None).unwrap();
    pending.set_wait_state(id, WaitState::Waiting(request(number)));
    id
}

#[test]
fn channel_is_stored_once_while_requested() {
    let mut pending = PendingReplies::new();
    let [one, other] = [1, 2].map(|number| notified(&mut pending, number));
    let [(first, _), (second, _)] = [one, other].map(|id| pending.channel_of(id).unwrap());
    assert!(Rc::ptr_eq(&first, &second) && pending.pubsub_count() == 2);
    pending.remove(one);
    assert_eq!((pending.pubsub_count(), pending.channels.len()), (1, 1));
    pending.remove(other);
    assert_eq!((pending.pubsub_count(), pending.channels.len()), (0, 0));
}

#[test]
fn only_earlier_waiters_are_aborted() {
    let mut pending = PendingReplies::new();
    let early = [1, 2].map(|number| notified(&mut pending, number));
    assert!(!pending.has_ended() && pending.next_aborted().is_none());
    pending.abort_all();
    notified(&mut pending, 3);
    assert!(pending.has_ended());
    assert_eq!(
        [(); 4].map(|()| pending.next_aborted()),
        [Some(Some(early[0])), Some(Some(early[1])), Some(None), None]
    );
    assert!(!pending.has_ended());
}

#[test]
fn panic_fails_every_wait() {
    let mut pending = PendingReplies::new();
    let (is_notified, blocked) = (notified(&mut pending, 1), blocked(&mut pending, 2));
    let over = pending.insert_pubsub(7, None, NEWS).unwrap();
    assert_eq!(pending.fail_all(), [(Some(Rc::from(NEWS)), request(1)), (None, request(2))]);
    assert!(pending.get(is_notified).is_none() && pending.get(over).is_none() && !pending.has_messages());
    assert!(matches!(pending.get(blocked).unwrap().wait_state(), WaitState::Failed));
    assert_eq!([pending.next_aborted(), pending.next_aborted()], [Some(Some(blocked)), None]);
}

fn grant(owner: &str) -> Grant {
    let claim = Claim { kind: Kind::Mutex, owner: owner.as_bytes().into(), lease: None, limit: None };
    Grant { db: 0, key: (*b"door").into(), claim, longest_lease: None, turn: Turn(7), since: 0, waiters: Vec::new() }
}

#[test]
fn grant_stands_if_one_client_was_notified() {
    for is_notified in [[false, false], [false, true], [true, false]] {
        let mut pending = PendingReplies::new();
        let delivery = pending.begin_delivery(grant("a"), 2, Vec::new()).unwrap();
        assert_eq!(pending.entry_count(), 2, "the delivery, and its entry in the index of the latest");
        assert_eq!(pending.finish_delivery(delivery, is_notified[0]), None, "the other may be notified");
        let unnotified = pending.finish_delivery(delivery, is_notified[1]);
        assert_eq!(unnotified.is_some(), is_notified == [false, false], "{is_notified:?}");
        assert!(!pending.has_deliveries() && pending.entry_count() == 0);
    }
}

#[test]
fn grant_stands_after_message_or_other_reply() {
    let mut pending = PendingReplies::new();
    let by_message = pending.begin_delivery(grant("a"), 1, vec![7]).unwrap();
    assert_eq!(pending.finish_delivery(by_message, false), None);
    let by_reply = pending.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    pending.mark_holder_notified(HoldKey::whole(0, b"gate"));
    pending.mark_holder_notified(HoldKey::whole(0, b"door"));
    assert_eq!(pending.finish_delivery(by_reply, false), None);
}

#[test]
fn superseded_delivery_is_void() {
    let mut pending = PendingReplies::new();
    let first = pending.begin_delivery(grant("a"), 1, Vec::new()).unwrap();
    assert!(pending.grant_unknown_to(8, first).is_some());
    let second = pending.begin_delivery(grant("b"), 1, vec![7]).unwrap();
    assert!(pending.grant_unknown_to(8, first).is_none());
    assert_eq!(pending.finish_delivery(first, false), None);
    assert!(pending.grant_unknown_to(8, second).is_some());
    assert!(pending.grant_unknown_to(7, second).is_none(), "a message has notified that connection");
    let third = pending.begin_delivery(grant("c"), 1, Vec::new()).unwrap();
    pending.supersede_delivery(HoldKey::whole(0, b"door"));
    assert_eq!(pending.finish_delivery(third, false), None);
}
