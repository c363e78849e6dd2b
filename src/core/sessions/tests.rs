use super::*;

const NOW: UnixMs = 1_000_000;

fn attach(sessions: &mut Sessions, key: &str, owner: &str, client: ClientId) {
    let lease = Lease::from_ms(300).unwrap();
    let (key, owner) = (key.as_bytes().into(), owner.as_bytes().into());
    sessions.attach(SessionLock { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace: None }, client, NOW);
}

/// Closes a connection and processes its sessions. Returns the owners of the sessions that ended.
fn close(sessions: &mut Sessions, client: ClientId) -> Vec<String> {
    sessions.connection_closed(client, NOW);
    let mut owners = Vec::new();
    while sessions.has_closed_connections() {
        let ended = sessions.pop_orphan();
        owners.extend(ended.map(|session| String::from_utf8(session.lock.owner.into_vec()).unwrap()));
    }
    owners
}

fn first_due(sessions: &mut Sessions, now: UnixMs) -> SessionId {
    match sessions.pop_due(now, true) {
        Some(SessionTask::Renew(id)) => id,
        other => panic!("{other:?} is no renewal"),
    }
}

#[test]
fn session_ends_with_its_last_connection() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    attach(&mut sessions, "k", "a", 2);
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions.pairs(), 2);
    assert!(close(&mut sessions, 1).is_empty());
    assert_eq!(close(&mut sessions, 2), ["a"]);
    assert!(sessions.is_empty() && sessions.pairs() == 0);
    assert_eq!(sessions.next_due(), None);
    assert!(close(&mut sessions, 2).is_empty());
}

#[test]
fn closed_connection_ends_all_its_sessions() {
    let mut sessions = Sessions::new();
    for key in ["k", "l", "m"] {
        attach(&mut sessions, key, "a", 1);
    }
    attach(&mut sessions, "n", "b", 2);
    assert_eq!((sessions.len(), sessions.pairs()), (4, 4));
    assert_eq!(close(&mut sessions, 1).len(), 3);
    assert_eq!((sessions.len(), sessions.pairs()), (1, 1));
}

#[test]
fn new_grant_ends_earlier_session() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    attach(&mut sessions, "k", "b", 2);
    assert!(close(&mut sessions, 1).is_empty());
    assert_eq!(close(&mut sessions, 2), ["b"]);
}

#[test]
fn orphan_is_found_by_hold_key() {
    let mut sessions = Sessions::new();
    for (key, client) in [("k", 1), ("k", 2), ("l", 1)] {
        attach(&mut sessions, key, "a", client);
    }
    sessions.connection_closed(1, NOW);
    assert_eq!(sessions.next_due(), Some(UnixMs::MIN));
    assert_eq!(sessions.take_orphan(HoldKey::whole(0, b"k")), None, "the other connection is open");
    let id = sessions.find(HoldKey::whole(0, b"k")).unwrap();
    assert_eq!(sessions.clients(id).collect::<Vec<_>>(), [2]);
    assert!(sessions.take_orphan(HoldKey::whole(0, b"l")).is_some());
    assert!(!sessions.has_closed_connections(), "connection 1 has no sessions");
    assert_eq!(sessions.pairs(), 1);
}

#[test]
fn session_matches_one_holder_and_kind() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    let session = sessions.find(HoldKey::whole(0, b"k")).and_then(|id| sessions.get(id)).unwrap();
    let holder = |kind, owner: &'static str| Holder {
        kind,
        owner: owner.as_bytes().into(),
        holds: 1,
        lease_end: None::<UnixMs>,
    };
    assert!(session.matches(&holder(Kind::Mutex, "a")));
    assert!(!session.matches(&holder(Kind::Reentrant, "a")));
    assert!(!session.matches(&holder(Kind::Mutex, "b")));
}

#[test]
fn session_keeps_holds_and_fits_lease_to_limit() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    sessions.set_holds(HoldKey::whole(0, b"k"), 3);
    let id = sessions.find(HoldKey::whole(0, b"k")).unwrap();
    for (longest, cut) in [(0, 300), (400, 300), (200, 200), (250, 200), (1, MIN_SESSION_LEASE_MS)] {
        sessions.fit_lease(id, Lease::from_ms(longest));
        let SessionLock { holds, lease, .. } = sessions.get(id).unwrap().lock;
        assert_eq!((holds, lease), (3, Lease::from_ms(cut).unwrap()), "{longest}");
    }
}

#[test]
fn lock_free_before_lease_end_has_not_expired() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find(HoldKey::whole(0, b"k")).unwrap();
    let expired = |sessions: &Sessions, now| sessions.get(id).unwrap().has_expired(now);
    sessions.set_lease_end(id, Some(NOW + 300));
    assert!(!expired(&sessions, NOW + 299));
    assert!(expired(&sessions, NOW + 300));
    sessions.set_lease_end(id, None);
    assert!(!expired(&sessions, NOW + 301));
    sessions.lease_changed(id);
    assert!(!expired(&sessions, NOW + 301), "the end is unknown");
    assert_eq!(sessions.pop_due(NOW, true), Some(SessionTask::Renew(id)));
    sessions.lease_expired(id);
    assert!(expired(&sessions, NOW));
    assert_eq!(sessions.pop_due(NOW, true), Some(SessionTask::Renew(id)));
}

#[test]
fn check_of_all_finds_each_session_once() {
    let mut sessions = Sessions::new();
    for key in ["k", "l", "m"] {
        attach(&mut sessions, key, "a", 1);
    }
    sessions.check_all();
    assert_eq!(sessions.next_due(), Some(UnixMs::MIN));
    for key in ["k", "l", "m"] {
        let id = sessions.find(HoldKey::whole(0, key.as_bytes())).unwrap();
        assert_eq!(sessions.pop_due(NOW, true), Some(SessionTask::Check(id)));
    }
    assert_eq!(sessions.pop_due(NOW, true), None);
    assert_eq!(sessions.next_due(), Some(NOW + 100));
}

#[test]
fn checks_and_renewals_take_turns() {
    let mut sessions = Sessions::new();
    for key in ["k", "l"] {
        attach(&mut sessions, key, "a", 1);
    }
    sessions.check_all();
    let tasks: Vec<_> = std::iter::from_fn(|| sessions.pop_due(NOW + 100, true)).collect();
    let [k, l] = [b"k", b"l"].map(|key| sessions.find(HoldKey::whole(0, key)).unwrap());
    assert_eq!(tasks, [SessionTask::Check(k), SessionTask::Renew(k), SessionTask::Check(l), SessionTask::Renew(l)]);
    sessions.renewed(k, Some(NOW + 400), NOW + 100);
    assert_eq!(sessions.next_due(), Some(NOW + 200));
    let expired = [NOW + 399, NOW + 400].map(|now| sessions.get(k).unwrap().has_expired(now));
    assert_eq!(expired, [false, true]);
}

#[test]
fn shorter_lease_found_advances_renewal() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find(HoldKey::whole(0, b"k")).unwrap();
    for (end, due) in
        [(Some(NOW + 1000), 100), (None, 100), (Some(NOW + 300), 100), (Some(NOW + 290), 90), (Some(NOW), -200)]
    {
        sessions.lease_found(id, end);
        assert_eq!(sessions.next_due(), Some(NOW + due), "{end:?}");
    }
}

#[test]
fn renewals_are_at_least_third_of_min_lease_apart() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    sessions.set_lease(HoldKey::whole(0, b"k"), Lease::from_ms(3).unwrap(), NOW);
    let id = first_due(&mut sessions, NOW);
    assert_eq!(sessions.get(id).unwrap().lock.lease, Lease::from_ms(MIN_SESSION_LEASE_MS).unwrap());
    sessions.schedule_renewal(id, NOW);
    assert_eq!(sessions.next_due(), Some(NOW + 33));
}

#[test]
fn ended_session_has_no_tasks() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    // The session, its lock, its connection, the two as a pair, and its renewal.
    assert_eq!(sessions.entry_count(), 5);
    sessions.end(HoldKey::whole(0, b"k"));
    assert_eq!((sessions.next_due(), sessions.entry_count()), (None, 0));
    assert!(close(&mut sessions, 1).is_empty());
    attach(&mut sessions, "k", "a", 1);
    sessions.detach(HoldKey::whole(0, b"k"), 1);
    assert!(sessions.is_empty() && sessions.connections.entries().count() == 0 && sessions.pairs() == 0);
    let mut deferred_free = DeferredFree::new();
    sessions.end_all(&mut deferred_free);
    assert!(deferred_free.is_empty(), "there were no sessions");
    attach(&mut sessions, "k", "a", 1);
    sessions.end_all(&mut deferred_free);
    assert!(sessions.is_empty() && sessions.connections.entries().count() == 0 && sessions.pairs() == 0);
    // An entry and the end, for each of four tables, and the end of three that were empty.
    assert_eq!(std::iter::repeat_with(|| deferred_free.free_one()).take_while(|&left| left).count(), 11);
}

#[test]
fn lease_is_renewed_after_each_third() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    assert_eq!(sessions.next_due(), Some(NOW + 100));
    assert_eq!(sessions.pop_due(NOW + 99, true), None);
    let id = first_due(&mut sessions, NOW + 100);
    assert_eq!(sessions.pop_due(NOW + 100, true), None);
    sessions.schedule_renewal(id, NOW + 100);
    assert_eq!(sessions.next_due(), Some(NOW + 200));
    sessions.set_lease(HoldKey::whole(0, b"k"), Lease::from_ms(600).unwrap(), NOW + 150);
    assert_eq!(sessions.next_due(), Some(NOW + 350));
}

#[test]
fn repeated_request_only_lengthens_lease() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    let id = sessions.find(HoldKey::whole(0, b"k")).unwrap();
    for (ms, expected) in [(900, 900), (30, 900)] {
        let lease = Lease::from_ms(ms).unwrap();
        let (key, owner) = (b"k"[..].into(), b"a"[..].into());
        sessions.attach(SessionLock { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace: None }, 1, NOW);
        assert_eq!(sessions.get(id).unwrap().lock.lease, Lease::from_ms(expected).unwrap());
    }
}

#[test]
fn repeated_request_does_not_delay_renewal() {
    let mut sessions = Sessions::new();
    attach(&mut sessions, "k", "a", 1);
    assert_eq!(sessions.next_due(), Some(NOW + 100));
    let lock = SessionLock {
        db: 0,
        key: b"k".as_slice().into(),
        kind: Kind::Mutex,
        owner: b"a".as_slice().into(),
        holds: 1,
        lease: Lease::from_ms(150).unwrap(),
        grace: None,
    };
    sessions.attach(lock, 2, NOW + 90);
    assert_eq!(sessions.next_due(), Some(NOW + 100));
}

#[test]
fn ended_shares_have_no_pairs() {
    let mut sessions = Sessions::new();
    let lease = Lease::from_ms(300).unwrap();
    for (owner, client) in [("a", 1), ("a", 2), ("b", 2)] {
        let (key, owner) = (b"k"[..].into(), owner.as_bytes().into());
        sessions.attach(
            SessionLock { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None },
            client,
            NOW,
        );
    }
    assert_eq!(sessions.pairs(), 3);
    sessions.end_shares(0, b"k");
    assert_eq!(sessions.pairs(), 0);
    attach(&mut sessions, "k", "c", 1);
    assert_eq!(close(&mut sessions, 1), ["c"]);
    while sessions.forget_ended() {}
    assert!(sessions.is_empty() && sessions.pairs() == 0);
}

#[test]
fn ended_share_sessions_need_no_recheck() {
    let mut sessions = Sessions::new();
    let (key, owner, lease) = (b"k"[..].into(), b"a"[..].into(), Lease::from_ms(300).unwrap());
    sessions.attach(SessionLock { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None }, 1, NOW);
    sessions.mark_for_recheck(0, b"k");
    assert_eq!(sessions.next_due(), Some(UnixMs::MIN));
    sessions.end_shares(0, b"k");
    while sessions.forget_ended() {}
    assert_eq!((sessions.first_to_recheck(), sessions.next_due()), (None, None));
}

#[test]
fn leases_of_many_shares_last_until_renewal() {
    let mut sessions = Sessions::new();
    let lease = Lease::from_ms(100).unwrap();
    for number in 0..2000 {
        let (key, owner) = (b"k"[..].into(), format!("{number}").into_bytes().into());
        sessions.attach(SessionLock { db: 0, key, kind: Kind::Shared, owner, holds: 1, lease, grace: None }, 1, NOW);
    }
    attach(&mut sessions, "alone", "a", 1);
    let leases = [HoldKey { db: 0, key: b"k", share: Some(b"7") }, HoldKey::whole(0, b"alone")].map(|hold_key| {
        let id = sessions.find(hold_key).unwrap();
        sessions.fit_lease(id, None);
        sessions.get(id).unwrap().lock.lease
    });
    assert_eq!(leases, [400, 300].map(|ms| Lease::from_ms(ms).unwrap()));
}

#[test]
fn grace_period_begins_with_the_last_close() {
    let mut sessions = Sessions::new();
    let graces = [(1, Some(500)), (2, Some(200)), (3, None)];
    for (client, grace) in graces {
        let (key, owner, lease) = (b"k".as_slice().into(), b"a".as_slice().into(), Lease::from_ms(1000).unwrap());
        let grace = grace.and_then(Lease::from_ms);
        let lock = SessionLock { db: 0, key, kind: Kind::Mutex, owner, holds: 1, lease, grace };
        sessions.attach(lock, client, NOW);
    }
    // The last close counts, although the connections are processed in another order, and the clock was set back.
    [(3, 40), (1, 70), (2, 10)].into_iter().for_each(|(client, ms)| sessions.connection_closed(client, NOW + ms));
    let orphans: Vec<_> = (0..3).filter_map(|_| sessions.pop_orphan()).collect();
    assert_eq!(orphans.iter().map(Session::grace_end).collect::<Vec<_>>(), [Some(NOW + 10 + 500)]);
}
