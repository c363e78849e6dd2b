use super::*;

const NEWS: &[u8] = b"news";

/// Returns a request of the core, by its number.
fn request(number: u64) -> EntryId {
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
