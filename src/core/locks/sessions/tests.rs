use super::*;
use crate::core::{Holder, Task};

const NOW: UnixMs = 1_000_000;

fn attach(sessions: &mut Locks, key: &str, owner: &str, client: ClientId) {
    let lease = Lease::from_ms(300).unwrap();
    let (key, owner) = (key.as_bytes().into(), owner.as_bytes().into());
    sessions.attach(NewSession { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace: None }, client, NOW);
}

/// Closes a connection and processes its sessions. Returns the owners of the sessions that ended.
fn close(sessions: &mut Locks, client: ClientId) -> Vec<String> {
    sessions.connection_closed(client, NOW);
    while sessions.detach_closed() {}
    let revoked = std::iter::from_fn(|| {
        let tasks = std::iter::from_fn(|| sessions.next_task(NOW, true));
        let id = tasks.into_iter().find_map(|task| if let Task::Revoke(id) = task { Some(id) } else { None })?;
        let owner = sessions.hold(id).map(|hold| String::from_utf8(hold.owner.to_vec()).unwrap());
        sessions.remove_revocation(id);
        owner
    });
    revoked.collect()
}

fn first_due(sessions: &mut Locks, now: UnixMs) -> HoldId {
    match sessions.next_task(now, true) {
        Some(Task::Renew(id)) => id,
        other => panic!("{other:?} is no renewal"),
    }
}

#[test]
fn session_ends_with_its_connection() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    attach(&mut sessions, "k", "a", 2);
    assert_eq!(sessions.session_count(), 1);
    assert!(close(&mut sessions, 1).is_empty());
    assert_eq!(close(&mut sessions, 2), ["a"]);
    assert!(!sessions.has_sessions());
    assert_eq!(sessions.next_due(true), None);
    assert!(close(&mut sessions, 2).is_empty());
}

#[test]
fn closed_connection_ends_all_its_sessions() {
    let mut sessions = Locks::new();
    for key in ["k", "l", "m"] {
        attach(&mut sessions, key, "a", 1);
    }
    attach(&mut sessions, "n", "b", 2);
    assert_eq!(sessions.session_count(), 4);
    assert_eq!(close(&mut sessions, 1).len(), 3);
    assert_eq!(sessions.session_count(), 1);
}

#[test]
fn new_grant_ends_earlier_session() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    attach(&mut sessions, "k", "b", 2);
    assert!(close(&mut sessions, 1).is_empty());
    assert_eq!(close(&mut sessions, 2), ["b"]);
}

#[test]
fn orphan_is_found_by_hold_key() {
    let mut sessions = Locks::new();
    for (key, client) in [("k", 1), ("k", 2), ("l", 1)] {
        attach(&mut sessions, key, "a", client);
    }
    sessions.connection_closed(1, NOW);
    assert_eq!(sessions.next_due(true), Some(UnixMs::MIN));
    let [k, l] = [b"k", b"l"].map(|key| sessions.record_of(0, key).unwrap());
    assert_eq!(sessions.revocation_of(k, None), None, "the connection that asked last is open");
    let id = sessions.session_of(k, None).unwrap();
    assert_eq!(sessions.client_of(id), Some(2));
    assert!(sessions.revocation_of(l, None).is_some());
    assert!(!sessions.connections.has_closed(), "connection 1 has no sessions");
    assert_eq!(sessions.session_count(), 1);
}

#[test]
fn session_matches_one_holder_and_kind() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    let hold = sessions.find_session(HoldKey::whole(0, b"k")).and_then(|id| sessions.hold(id)).unwrap();
    let holder = |kind, owner: &'static str| Holder {
        kind,
        owner: owner.as_bytes().into(),
        holds: 1,
        lease_end: None::<UnixMs>,
    };
    assert!(hold.matches(&holder(Kind::Mutex, "a")));
    assert!(!hold.matches(&holder(Kind::Reentrant, "a")));
    assert!(!hold.matches(&holder(Kind::Mutex, "b")));
}

#[test]
fn session_keeps_holds_and_fits_lease_to_limit() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    sessions.set_holds(HoldKey::whole(0, b"k"), 3);
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    for (longest, cut) in [(0, 300), (400, 300), (200, 200), (250, 200), (1, MIN_SESSION_LEASE_MS)] {
        sessions.fit_lease(id, Lease::from_ms(longest));
        let Session { holds, lease, .. } = sessions.session(id).unwrap();
        assert_eq!((*holds, *lease), (3, Lease::from_ms(cut).unwrap()), "{longest}");
    }
}

#[test]
fn lock_free_before_lease_end_has_not_expired() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    let expired = |sessions: &Locks, now| sessions.session(id).unwrap().has_expired(now);
    sessions.set_lease_end(id, Some(NOW + 300));
    assert!(!expired(&sessions, NOW + 299));
    assert!(expired(&sessions, NOW + 300));
    sessions.set_lease_end(id, None);
    assert!(!expired(&sessions, NOW + 301));
    sessions.lease_changed(id);
    assert!(!expired(&sessions, NOW + 301), "the end is unknown");
    assert_eq!(sessions.next_task(NOW, true), Some(Task::Renew(id)));
    sessions.lease_expired(id);
    assert!(expired(&sessions, NOW));
    assert_eq!(sessions.next_task(NOW, true), Some(Task::Renew(id)));
}

#[test]
fn check_of_all_finds_each_session_once() {
    let mut sessions = Locks::new();
    for key in ["k", "l", "m"] {
        attach(&mut sessions, key, "a", 1);
    }
    sessions.check_all();
    assert_eq!(sessions.next_due(true), Some(UnixMs::MIN));
    for key in ["k", "l", "m"] {
        let id = sessions.find_session(HoldKey::whole(0, key.as_bytes())).unwrap();
        assert_eq!(sessions.next_task(NOW, true), Some(Task::Check(id)));
    }
    assert_eq!(sessions.next_task(NOW, true), None);
    assert_eq!(sessions.next_due(true), Some(NOW + 100));
}

#[test]
fn checks_and_renewals_take_turns() {
    let mut sessions = Locks::new();
    for key in ["k", "l"] {
        attach(&mut sessions, key, "a", 1);
    }
    sessions.check_all();
    let tasks: Vec<_> = std::iter::from_fn(|| sessions.next_task(NOW + 100, true)).collect();
    let [k, l] = [b"k", b"l"].map(|key| sessions.find_session(HoldKey::whole(0, key)).unwrap());
    assert_eq!(tasks, [Task::Renew(k), Task::Check(k), Task::Renew(l), Task::Check(l)]);
    sessions.renewed(k, Some(NOW + 400), NOW + 100);
    assert_eq!(sessions.next_due(true), Some(NOW + 200));
    let expired = [NOW + 399, NOW + 400].map(|now| sessions.session(k).unwrap().has_expired(now));
    assert_eq!(expired, [false, true]);
}

#[test]
fn shorter_lease_found_advances_renewal() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    for (end, due) in
        [(Some(NOW + 1000), 100), (None, 100), (Some(NOW + 300), 100), (Some(NOW + 290), 90), (Some(NOW), -200)]
    {
        sessions.lease_found(id, end);
        assert_eq!(sessions.next_due(true), Some(NOW + due), "{end:?}");
    }
}

#[test]
fn renewals_are_at_least_third_of_min_lease_apart() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    sessions.set_lease(HoldKey::whole(0, b"k"), Lease::from_ms(3).unwrap(), NOW);
    let id = first_due(&mut sessions, NOW);
    assert_eq!(sessions.session(id).unwrap().lease, Lease::from_ms(MIN_SESSION_LEASE_MS).unwrap());
    sessions.schedule_renewal(id, NOW);
    assert_eq!(sessions.next_due(true), Some(NOW + 33));
}

#[test]
fn ended_session_has_no_tasks() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    // The record and its name, the hold, the session, its connection, its renewal, and the place of the lock.
    assert_eq!(sessions.entry_count(), 7);
    sessions.end_session(HoldKey::whole(0, b"k"));
    assert_eq!((sessions.next_due(true), sessions.entry_count()), (None, 0));
    assert!(close(&mut sessions, 1).is_empty());
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    sessions.detach(id, 1);
    assert!(sessions.is_empty() && sessions.connections.entries().count() == 0);
    sessions.drop_holds();
    assert_eq!(sessions.next_due(true), None, "there were no sessions");
    attach(&mut sessions, "k", "a", 1);
    sessions.drop_holds();
    assert_eq!((sessions.session_count(), sessions.session_of(sessions.record_of(0, b"k").unwrap(), None)), (0, None));
    while sessions.next_task(NOW, false).is_some() {}
    assert!(sessions.is_empty() && sessions.entry_count() == 0);
}

#[test]
fn lease_is_renewed_after_each_third() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    assert_eq!(sessions.next_due(true), Some(NOW + 100));
    assert_eq!(sessions.next_task(NOW + 99, true), None);
    let id = first_due(&mut sessions, NOW + 100);
    assert_eq!(sessions.next_task(NOW + 100, true), None);
    sessions.schedule_renewal(id, NOW + 100);
    assert_eq!(sessions.next_due(true), Some(NOW + 200));
    sessions.set_lease(HoldKey::whole(0, b"k"), Lease::from_ms(600).unwrap(), NOW + 150);
    assert_eq!(sessions.next_due(true), Some(NOW + 350));
}

#[test]
fn repeated_request_only_lengthens_lease() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    for (ms, expected) in [(900, 900), (30, 900)] {
        let lease = Lease::from_ms(ms).unwrap();
        let (key, owner) = (b"k"[..].into(), b"a"[..].into());
        sessions.attach(NewSession { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace: None }, 1, NOW);
        assert_eq!(sessions.session(id).unwrap().lease, Lease::from_ms(expected).unwrap());
    }
}

#[test]
fn repeated_request_does_not_delay_renewal() {
    let mut sessions = Locks::new();
    attach(&mut sessions, "k", "a", 1);
    assert_eq!(sessions.next_due(true), Some(NOW + 100));
    let lock = NewSession {
        db: 0,
        key: b"k".as_slice().into(),
        kind: Kind::Mutex,
        owner: b"a".as_slice().into(),
        holds: 1,
        lease: Lease::from_ms(150).unwrap(),
        grace: None,
    };
    sessions.attach(lock, 2, NOW + 90);
    assert_eq!(sessions.next_due(true), Some(NOW + 100));
}

#[test]
fn ended_shares_do_not_count() {
    let mut sessions = Locks::new();
    let lease = Lease::from_ms(300).unwrap();
    for (owner, client) in [("a", 1), ("b", 2)] {
        let (key, owner) = (b"k"[..].into(), owner.as_bytes().into());
        sessions.attach(
            NewSession { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None },
            client,
            NOW,
        );
    }
    assert_eq!(sessions.session_count(), 2);
    sessions.end_shares(sessions.record_of(0, b"k").unwrap());
    assert_eq!(sessions.session_count(), 0);
    attach(&mut sessions, "k", "c", 1);
    assert_eq!(close(&mut sessions, 1), ["c"]);
    while sessions.forget_ended() {}
    assert!(!sessions.has_sessions() && sessions.session_count() == 0);
}

#[test]
fn ended_share_sessions_need_no_recheck() {
    let mut sessions = Locks::new();
    let (key, owner, lease) = (b"k"[..].into(), b"a"[..].into(), Lease::from_ms(300).unwrap());
    sessions.attach(NewSession { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None }, 1, NOW);
    sessions.mark_for_recheck(sessions.record_of(0, b"k").unwrap());
    assert_eq!(sessions.next_due(true), Some(UnixMs::MIN));
    sessions.end_shares(sessions.record_of(0, b"k").unwrap());
    while sessions.forget_ended() {}
    assert_eq!(sessions.next_due(true), None);
}

#[test]
fn leases_of_many_shares_last_until_renewal() {
    let mut sessions = Locks::new();
    let lease = Lease::from_ms(100).unwrap();
    for number in 0..2000 {
        let (key, owner) = (b"k"[..].into(), format!("{number}").into_bytes().into());
        sessions.attach(NewSession { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None }, 1, NOW);
    }
    attach(&mut sessions, "alone", "a", 1);
    let leases = [HoldKey { db: 0, key: b"k", share: Some(b"7") }, HoldKey::whole(0, b"alone")].map(|hold_key| {
        let id = sessions.find_session(hold_key).unwrap();
        sessions.fit_lease(id, None);
        sessions.session(id).unwrap().lease
    });
    assert_eq!(leases, [400, 300].map(|ms| Lease::from_ms(ms).unwrap()));
}

#[test]
fn session_moves_to_connection_that_asked_last() {
    let mut sessions = Locks::new();
    for (client, grace) in [(1, Some(500)), (2, Some(200)), (3, None)] {
        let (key, owner, lease) = (b"k".as_slice().into(), b"a".as_slice().into(), Lease::from_ms(1000).unwrap());
        let grace = grace.and_then(Lease::from_ms);
        let lock = NewSession { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace };
        sessions.attach(lock, client, NOW);
        // The close of an earlier connection, processed or not, does nothing.
        sessions.connection_closed(client - 1, NOW + 5);
        assert!(!sessions.detach_closed());
    }
    let id = sessions.find_session(HoldKey::whole(0, b"k")).unwrap();
    assert_eq!((sessions.client_of(id), sessions.session_count()), (Some(3), 1));
    sessions.connection_closed(3, NOW + 10);
    assert_eq!(sessions.client_of(id), None);
    assert!(sessions.detach_closed() && !sessions.detach_closed());
    let end = sessions.hold(id).unwrap().revocation.as_ref().unwrap().grace_end_after(NOW);
    assert_eq!(end, Some(NOW + 10 + 500), "the longest grace period");
}
