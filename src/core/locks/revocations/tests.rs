use std::borrow::Cow;

use super::*;
use crate::core::locks::NewSession;
use crate::core::{Claim, Kind, Lease, Task, Turn, WaiterId};

const WHOLE: HoldKey<'static> = HoldKey { db: 0, key: b"k", share: None };

fn grant(kind: Kind, owner: &str) -> Grant {
    let claim = Claim { kind, owner: owner.as_bytes().into(), lease: None, limit: None };
    Grant { db: 0, key: b"k"[..].into(), claim, turn: Turn(7), since: 0, waiter: WaiterId(1) }
}

/// Returns locks with one grant to revoke.
fn undelivered(owner: &str) -> Locks {
    let mut locks = Locks::new();
    locks.revoke_grant(grant(Kind::Reentrant, owner));
    locks
}

/// Gives the lock a session that ends at once, with this grace period.
fn end_session(locks: &mut Locks, owner: &str, grace_ms: i64) {
    let (key, owner, lease) = (b"k"[..].into(), owner.as_bytes().into(), Lease::from_ms(1_000).unwrap());
    let grace = Lease::from_ms(grace_ms);
    locks.attach(NewSession { db: 0, key, kind: Kind::Reentrant, owner, holds: 3, lease, grace }, 1, 0);
    locks.connection_closed(1, 0);
    assert!(locks.detach_closed());
}

fn holder(owner: &'static str, holds: i64) -> Holder<'static> {
    Holder { kind: Kind::Reentrant, owner: Cow::Borrowed(owner.as_bytes()), holds, lease_end: None }
}

fn revoked(locks: &Locks) -> &Hold {
    locks.find_hold(WHOLE).and_then(|id| locks.hold(id)).unwrap()
}

#[test]
fn revocation_matches_only_unchanged_grant() {
    let locks = undelivered("a");
    let hold = revoked(&locks);
    assert!(hold.is_revoked_from(&holder("a", 1)));
    assert!(!hold.is_revoked_from(&holder("a", 2)));
    assert!(!hold.is_revoked_from(&holder("b", 1)));
    assert!(!hold.is_revoked_from(&Holder { kind: Kind::Mutex, ..holder("a", 1) }));
}

#[test]
fn later_revocation_replaces_earlier_one() {
    let mut locks = undelivered("a");
    end_session(&mut locks, "b", 0);
    assert_eq!(&*revoked(&locks).owner, b"b");
    assert!(revoked(&locks).revocation.as_ref().unwrap().grant.is_none(), "the turn of a is not restored for b");
    locks.revoke_grant(grant(Kind::Mutex, "b"));
    assert!(!revoked(&locks).is_revoked_from(&Holder { kind: Kind::Mutex, ..holder("b", 3) }), "only its first hold");
    let id = locks.find_hold(WHOLE).unwrap();
    assert!(locks.remove_revocation(id).is_some() && locks.remove_revocation(id).is_none());
    assert!(locks.is_empty() && !locks.has_revocations() && locks.entry_count() == 0);
}

#[test]
fn revocations_of_grant_and_session_are_merged() {
    let mut locks = undelivered("a");
    end_session(&mut locks, "a", 0);
    let hold = revoked(&locks);
    assert!(hold.revocation.as_ref().unwrap().grant.is_some() && hold.is_revoked_from(&holder("a", 3)));
}

#[test]
fn grant_that_reached_no_client_has_no_grace_period() {
    let mut locks = Locks::new();
    let ends = |locks: &Locks| [49, 50].map(|now| revoked(locks).revocation.as_ref().unwrap().grace_end_after(now));
    for grace_ms in [50, 40] {
        end_session(&mut locks, "a", grace_ms);
        assert_eq!(ends(&locks), [Some(50), None], "the later end counts");
    }
    locks.revoke_grant(grant(Kind::Reentrant, "a"));
    assert_eq!(ends(&locks), [None, None]);
}

#[test]
fn revocation_is_cancelled_when_lock_is_granted() {
    let mut locks = undelivered("a");
    locks.cancel_revocation(HoldKey::whole(0, b"other"));
    assert_eq!(locks.next_due(true), Some(UnixMs::MIN));
    assert_eq!(
        locks.entry_count(),
        6,
        "the record and its name, the hold, its revocation, that on the agenda, and its place"
    );
    locks.cancel_revocation(WHOLE);
    assert_eq!(locks.entry_count(), 0);
    assert_eq!((locks.next_due(true), locks.next_task(UnixMs::MAX, true)), (None, None));
}

#[test]
fn dropped_holds_are_removed_one_by_one() {
    let mut locks = Locks::new();
    locks.drop_holds();
    assert_eq!(locks.next_due(true), None);
    end_session(&mut locks, "a", 0);
    let id = locks.find_hold(WHOLE).unwrap();
    locks.drop_holds();
    assert!(locks.find_hold(WHOLE).is_none() && !locks.is_current(id) && !locks.is_empty());
    while locks.next_task(0, false).is_some() {}
    assert!(locks.hold(id).is_none() && !locks.has_revocations());
    assert_eq!((locks.next_due(true), locks.entry_count()), (None, 0));
    locks.revoke_grant(grant(Kind::Mutex, "b"));
    assert!(locks.hold(id).is_none(), "an earlier handle finds no later hold");
}

#[test]
fn hold_of_later_time_survives_drop() {
    let mut locks = undelivered("a");
    locks.drop_holds();
    locks.revoke_grant(grant(Kind::Mutex, "b"));
    while locks.next_task(0, false).is_some() {}
    assert_eq!(&*revoked(&locks).owner, b"b");
    assert_eq!(locks.next_task(0, true), locks.find_hold(WHOLE).map(Task::Revoke));
}

#[test]
fn postponed_revocation_is_due_again() {
    let mut locks = undelivered("a");
    let id = locks.find_hold(WHOLE).unwrap();
    assert_eq!([(); 2].map(|()| locks.next_task(0, true)), [Some(Task::Revoke(id)); 2], "until it is removed");
    locks.postpone_revocation(id, 20);
    assert_eq!([19, 20].map(|now| locks.next_task(now, true)), [None, Some(Task::Revoke(id))]);
}
