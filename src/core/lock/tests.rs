use super::*;

const NOW: UnixMs = 1_000_000;

const FREE: Lock<'static> = Lock::Free;

fn held(kind: Kind, holds: i64, lease_end: Option<UnixMs>) -> Lock<'static> {
    Lock::Held(Holder { kind, owner: Cow::Borrowed(b"me"), holds, lease_end })
}

fn lease(ms: i64) -> Option<Lease> {
    Lease::from_ms(ms)
}

fn done(write: Write, reply: i64) -> Decision {
    Decision::Done { write, reply }
}

#[test]
fn a_lease_is_positive_and_within_the_calendar() {
    assert_eq!(Lease::from_ms(0), None);
    assert_eq!(Lease::from_ms(-1), None);
    assert!(Lease::from_ms(MAX_DURATION_MS).is_some());
    assert_eq!(Lease::from_ms(MAX_DURATION_MS + 1), None);
}

#[test]
fn a_free_lock_is_taken_with_a_lease_from_now() {
    let lease_end = Some(NOW + 500);
    let write = Write::Take { kind: Kind::Mutex, lease_end };
    assert_eq!(acquire(&FREE, b"me", lease(500), false, NOW), done(write, 1));
    assert_eq!(acquire(&FREE, b"me", lease(500), true, NOW), done(write, 1));
    let write = Write::Take { kind: Kind::Reentrant, lease_end: None };
    assert_eq!(reenter(&FREE, b"me", None, None, NOW), Ok(done(write, 1)));
}

#[test]
fn the_same_token_is_the_same_caller_unless_it_asks_for_a_fresh_grant() {
    let lock = held(Kind::Mutex, 1, None);
    assert_eq!(acquire(&lock, b"me", None, false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", None, true, NOW), Decision::Contended);
    assert_eq!(acquire(&lock, b"you", None, false, NOW), Decision::Contended);
}

#[test]
fn the_two_kinds_exclude_each_other_even_for_one_identity() {
    assert_eq!(acquire(&held(Kind::Reentrant, 1, None), b"me", None, false, NOW), Decision::Contended);
    assert_eq!(reenter(&held(Kind::Mutex, 1, None), b"me", None, None, NOW), Ok(Decision::Contended));
}

#[test]
fn an_inner_lease_only_lengthens_the_outer_one() {
    let lock = held(Kind::Mutex, 1, Some(NOW + 100));
    assert_eq!(acquire(&lock, b"me", lease(50), false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", lease(100), false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", lease(101), false, NOW), done(Write::Confirm { lease_end: Some(NOW + 101) }, 1));

    let lock = held(Kind::Reentrant, 2, Some(NOW + 100));
    let shorter = Write::SetHolds { holds: 3, lease_end: None };
    assert_eq!(reenter(&lock, b"me", lease(50), None, NOW), Ok(done(shorter, 3)));
    let longer = Write::SetHolds { holds: 1, lease_end: Some(NOW + 200) };
    assert_eq!(release(&lock, b"me", lease(200), None, NOW), Ok(done(longer, 1)));
}

#[test]
fn a_lock_without_a_lease_is_given_none() {
    assert_eq!(
        acquire(&held(Kind::Mutex, 1, None), b"me", lease(50), false, NOW),
        done(Write::Confirm { lease_end: None }, 1)
    );
    let write = Write::SetHolds { holds: 2, lease_end: None };
    assert_eq!(reenter(&held(Kind::Reentrant, 1, None), b"me", lease(50), None, NOW), Ok(done(write, 2)));
    assert_eq!(extend(&held(Kind::Mutex, 1, None), b"me", lease(50).unwrap(), false, NOW), Err(Error::NoLease));
}

#[test]
fn holds_that_would_overflow_are_refused() {
    let lock = held(Kind::Reentrant, i64::MAX, None);
    assert_eq!(reenter(&lock, b"me", None, None, NOW), Err(Error::Overflow));
}

#[test]
fn the_last_release_frees_and_an_earlier_one_counts_down() {
    assert_eq!(release(&held(Kind::Mutex, 1, None), b"me", None, None, NOW), Ok(done(Write::Free, 0)));
    assert_eq!(release(&held(Kind::Reentrant, 1, None), b"me", lease(9), None, NOW), Ok(done(Write::Free, 0)));
    let write = Write::SetHolds { holds: 1, lease_end: None };
    assert_eq!(release(&held(Kind::Reentrant, 2, None), b"me", None, None, NOW), Ok(done(write, 1)));
}

#[test]
fn only_the_holder_releases_and_extends() {
    for kind in [Kind::Mutex, Kind::Reentrant] {
        let lock = held(kind, 1, Some(NOW + 1));
        assert_eq!(release(&lock, b"you", None, None, NOW), Err(Error::NotOwner));
        assert_eq!(extend(&lock, b"you", lease(1).unwrap(), false, NOW), Err(Error::NotOwner));
    }
    assert_eq!(release(&FREE, b"me", None, None, NOW), Err(Error::NotHeld));
    assert_eq!(extend(&FREE, b"me", lease(1).unwrap(), false, NOW), Err(Error::NotHeld));
}

#[test]
fn extend_sets_the_lease_exactly_and_add_lengthens_what_remains() {
    let lock = held(Kind::Mutex, 1, Some(NOW + 100));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), false, NOW), Ok(done(Write::SetLease(NOW + 30), 30)));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), true, NOW), Ok(done(Write::SetLease(NOW + 130), 130)));
}

#[test]
fn what_remains_of_a_lease_that_has_ended_is_nothing_and_add_begins_there() {
    let lock = held(Kind::Mutex, 1, Some(NOW - 40));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), true, NOW), Ok(done(Write::SetLease(NOW + 30), 30)));
}

#[test]
fn a_lease_beyond_the_calendar_is_refused_and_not_wrapped() {
    let lock = held(Kind::Mutex, 1, Some(i64::MAX - 5));
    assert_eq!(extend(&lock, b"me", lease(6).unwrap(), true, NOW), Err(Error::InvalidExpire));
}

fn hold(number: i64) -> Option<HoldNumber> {
    HoldNumber::from_number(number)
}

#[test]
fn a_hold_is_counted_from_one() {
    assert_eq!(hold(0), None);
    assert_eq!(hold(-1), None);
    assert!(hold(1).is_some());
}

#[test]
fn a_numbered_reentry_counts_once_however_often_it_is_sent() {
    let lock = held(Kind::Reentrant, 2, Some(NOW + 100));
    let next = Write::SetHolds { holds: 3, lease_end: None };
    assert_eq!(reenter(&lock, b"me", None, hold(3), NOW), Ok(done(next, 3)));
    let again = Write::Confirm { lease_end: Some(NOW + 200) };
    assert_eq!(reenter(&lock, b"me", lease(200), hold(2), NOW), Ok(done(again, 2)));
    for number in [1, 4, i64::MAX] {
        assert_eq!(reenter(&lock, b"me", None, hold(number), NOW), Err(Error::HoldMismatch), "{number}");
    }
}

#[test]
fn a_first_hold_may_be_taken_or_waited_for_and_a_later_one_is_lost_without_it() {
    let taken = Write::Take { kind: Kind::Reentrant, lease_end: None };
    assert_eq!(reenter(&FREE, b"me", None, hold(1), NOW), Ok(done(taken, 1)));
    assert_eq!(reenter(&FREE, b"me", None, hold(2), NOW), Err(Error::NotHeld));
    for lock in [held(Kind::Mutex, 1, None), held(Kind::Reentrant, 2, None)] {
        assert_eq!(reenter(&lock, b"you", None, hold(1), NOW), Ok(Decision::Contended));
        assert_eq!(reenter(&lock, b"you", None, hold(2), NOW), Err(Error::NotOwner));
    }
}

#[test]
fn a_numbered_release_counts_once_however_often_it_is_sent() {
    let lock = held(Kind::Reentrant, 2, None);
    let next = Write::SetHolds { holds: 1, lease_end: None };
    assert_eq!(release(&lock, b"me", None, hold(2), NOW), Ok(done(next, 1)));
    assert_eq!(release(&lock, b"me", None, hold(3), NOW), Ok(done(Write::Confirm { lease_end: None }, 2)));
    assert_eq!(release(&lock, b"me", None, hold(1), NOW), Err(Error::HoldMismatch));
    assert_eq!(release(&lock, b"me", None, hold(4), NOW), Err(Error::HoldMismatch));
}

#[test]
fn a_mutex_has_one_hold() {
    let lock = held(Kind::Mutex, 1, None);
    assert_eq!(release(&lock, b"me", None, hold(1), NOW), Ok(done(Write::Free, 0)));
    assert_eq!(release(&lock, b"me", None, hold(3), NOW), Err(Error::HoldMismatch));
    assert_eq!(release(&FREE, b"me", None, hold(1), NOW), Err(Error::NotHeld));
}
