use super::terms::MAX_LIMIT;
use super::*;
use crate::core::MAX_DURATION_MS;

const NOW: UnixMs = 1_000_000;

const FREE: Lock<'static> = Lock::Free;

fn held(kind: Kind, holds: i64, lease_end: Option<UnixMs>) -> Lock<'static> {
    Lock::Held(Holder { kind, owner: Cow::Borrowed(b"me"), holds, lease_end })
}

fn lease(ms: i64) -> Option<Lease> {
    Lease::from_ms(ms)
}

fn done(write: Write, reply: i64) -> Result<Decision, Error> {
    Ok(Decision::Done { write, reply })
}

#[test]
fn lease_is_positive_and_limited() {
    assert_eq!(Lease::from_ms(0), None);
    assert_eq!(Lease::from_ms(-1), None);
    assert!(Lease::from_ms(MAX_DURATION_MS).is_some());
    assert_eq!(Lease::from_ms(MAX_DURATION_MS + 1), None);
}

#[test]
fn renewal_comes_after_third_of_lease() {
    for (ms, after, again) in [(1, 1, 20), (300, 100, 25), (60_000, 20_000, 1000)] {
        let lease = lease(ms).unwrap();
        assert_eq!(lease.renewal_after(NOW), NOW + after);
        assert_eq!(lease.renewal_before(NOW + ms), NOW + after);
        assert_eq!(lease.renewal_retry_after(NOW), NOW + again);
    }
}

#[test]
fn free_lock_is_taken_with_lease_from_now() {
    let lease_end = Some(NOW + 500);
    let write = Write::Take { kind: Kind::Mutex, lease_end };
    assert_eq!(acquire(&FREE, b"me", lease(500), false, NOW), done(write, 1));
    assert_eq!(acquire(&FREE, b"me", lease(500), true, NOW), done(write, 1));
    let write = Write::Take { kind: Kind::Reentrant, lease_end: None };
    assert_eq!(reenter(&FREE, b"me", None, None, NOW), done(write, 1));
}

#[test]
fn lock_lease_is_that_of_last_share() {
    let shares = Lock::Shared(Shares { own: None, held: 2, lease_end: Some(NOW + 7) });
    let ends = [FREE, held(Kind::Mutex, 1, Some(NOW + 5)), held(Kind::Mutex, 1, None), shares].map(|it| it.lease_end());
    assert_eq!(ends, [None, Some(NOW + 5), None, Some(NOW + 7)]);
}

#[test]
fn same_token_confirms_lock_unless_strict() {
    let lock = held(Kind::Mutex, 1, None);
    assert_eq!(acquire(&lock, b"me", None, false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", None, true, NOW), Ok(Decision::Contended));
    assert_eq!(acquire(&lock, b"you", None, false, NOW), Ok(Decision::Contended));
}

#[test]
fn kinds_exclude_each_other_for_one_identity() {
    assert_eq!(acquire(&held(Kind::Reentrant, 1, None), b"me", None, false, NOW), Ok(Decision::Contended));
    assert_eq!(reenter(&held(Kind::Mutex, 1, None), b"me", None, None, NOW), Ok(Decision::Contended));
}

#[test]
fn inner_lease_only_lengthens_outer_one() {
    let lock = held(Kind::Mutex, 1, Some(NOW + 100));
    assert_eq!(acquire(&lock, b"me", lease(50), false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", lease(100), false, NOW), done(Write::Confirm { lease_end: None }, 1));
    assert_eq!(acquire(&lock, b"me", lease(101), false, NOW), done(Write::Confirm { lease_end: Some(NOW + 101) }, 1));

    let lock = held(Kind::Reentrant, 2, Some(NOW + 100));
    let shorter = Write::SetHolds { holds: 3, lease_end: None };
    assert_eq!(reenter(&lock, b"me", lease(50), None, NOW), done(shorter, 3));
    let longer = Write::SetHolds { holds: 1, lease_end: Some(NOW + 200) };
    assert_eq!(release(&lock, b"me", lease(200), None, NOW), done(longer, 1));
}

#[test]
fn lock_without_lease_gets_none() {
    assert_eq!(
        acquire(&held(Kind::Mutex, 1, None), b"me", lease(50), false, NOW),
        done(Write::Confirm { lease_end: None }, 1)
    );
    let write = Write::SetHolds { holds: 2, lease_end: None };
    assert_eq!(reenter(&held(Kind::Reentrant, 1, None), b"me", lease(50), None, NOW), done(write, 2));
    assert_eq!(extend(&held(Kind::Mutex, 1, None), b"me", lease(50).unwrap(), false, NOW), Err(Error::NoLease));
}

#[test]
fn holds_that_would_overflow_are_refused() {
    let lock = held(Kind::Reentrant, i64::MAX, None);
    assert_eq!(reenter(&lock, b"me", None, None, NOW), Err(Error::Overflow));
}

#[test]
fn only_last_release_frees_reentrant_lock() {
    assert_eq!(release(&held(Kind::Mutex, 1, None), b"me", None, None, NOW), done(Write::Free, 0));
    assert_eq!(release(&held(Kind::Reentrant, 1, None), b"me", lease(9), None, NOW), done(Write::Free, 0));
    let write = Write::SetHolds { holds: 1, lease_end: None };
    assert_eq!(release(&held(Kind::Reentrant, 2, None), b"me", None, None, NOW), done(write, 1));
}

#[test]
fn only_holder_releases_and_extends() {
    for kind in [Kind::Mutex, Kind::Reentrant] {
        let lock = held(kind, 1, Some(NOW + 1));
        assert_eq!(release(&lock, b"you", None, None, NOW), Err(Error::NotOwner));
        assert_eq!(extend(&lock, b"you", lease(1).unwrap(), false, NOW), Err(Error::NotOwner));
    }
    assert_eq!(release(&FREE, b"me", None, None, NOW), Err(Error::NotHeld));
    assert_eq!(extend(&FREE, b"me", lease(1).unwrap(), false, NOW), Err(Error::NotHeld));
}

#[test]
fn extend_sets_lease_and_add_lengthens_it() {
    let lock = held(Kind::Mutex, 1, Some(NOW + 100));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), false, NOW), done(Write::SetLease(NOW + 30), 30));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), true, NOW), done(Write::SetLease(NOW + 130), 130));
}

#[test]
fn add_to_ended_lease_starts_from_now() {
    let lock = held(Kind::Mutex, 1, Some(NOW - 40));
    assert_eq!(extend(&lock, b"me", lease(30).unwrap(), true, NOW), done(Write::SetLease(NOW + 30), 30));
}

#[test]
fn lease_end_overflow_is_refused() {
    let lock = held(Kind::Mutex, 1, Some(i64::MAX - 5));
    assert_eq!(extend(&lock, b"me", lease(6).unwrap(), true, NOW), Err(Error::InvalidExpire));
}

fn hold(number: i64) -> Option<HoldNumber> {
    HoldNumber::from_number(number)
}

#[test]
fn hold_number_starts_at_one() {
    assert_eq!(hold(0), None);
    assert_eq!(hold(-1), None);
    assert!(hold(1).is_some());
}

#[test]
fn repeated_numbered_reentry_counts_once() {
    let lock = held(Kind::Reentrant, 2, Some(NOW + 100));
    let next = Write::SetHolds { holds: 3, lease_end: None };
    assert_eq!(reenter(&lock, b"me", None, hold(3), NOW), done(next, 3));
    let again = Write::Confirm { lease_end: Some(NOW + 200) };
    assert_eq!(reenter(&lock, b"me", lease(200), hold(2), NOW), done(again, 2));
    for number in [1, 4, i64::MAX] {
        assert_eq!(reenter(&lock, b"me", None, hold(number), NOW), Err(Error::HoldMismatch), "{number}");
    }
}

#[test]
fn only_first_hold_number_takes_free_lock() {
    let taken = Write::Take { kind: Kind::Reentrant, lease_end: None };
    assert_eq!(reenter(&FREE, b"me", None, hold(1), NOW), done(taken, 1));
    assert_eq!(reenter(&FREE, b"me", None, hold(2), NOW), Err(Error::NotHeld));
    for lock in [held(Kind::Mutex, 1, None), held(Kind::Reentrant, 2, None)] {
        assert_eq!(reenter(&lock, b"you", None, hold(1), NOW), Ok(Decision::Contended));
        assert_eq!(reenter(&lock, b"you", None, hold(2), NOW), Err(Error::NotOwner));
    }
}

#[test]
fn repeated_numbered_release_counts_once() {
    let lock = held(Kind::Reentrant, 2, None);
    let next = Write::SetHolds { holds: 1, lease_end: None };
    assert_eq!(release(&lock, b"me", None, hold(2), NOW), done(next, 1));
    assert_eq!(release(&lock, b"me", None, hold(3), NOW), done(Write::Confirm { lease_end: None }, 2));
    assert_eq!(release(&lock, b"me", None, hold(1), NOW), Err(Error::HoldMismatch));
    assert_eq!(release(&lock, b"me", None, hold(4), NOW), Err(Error::HoldMismatch));
}

#[test]
fn mutex_has_one_hold() {
    let lock = held(Kind::Mutex, 1, None);
    assert_eq!(release(&lock, b"me", None, hold(1), NOW), done(Write::Free, 0));
    assert_eq!(release(&lock, b"me", None, hold(3), NOW), Err(Error::HoldMismatch));
    assert_eq!(release(&FREE, b"me", None, hold(1), NOW), Err(Error::NotHeld));
}

fn shares(own: Option<Option<UnixMs>>, held: usize) -> Lock<'static> {
    let own =
        own.map(|lease_end| Holder { kind: Kind::Shared, owner: Cow::Borrowed(b"me".as_slice()), holds: 1, lease_end });
    Lock::Shared(Shares { own, held, lease_end: Some(NOW + 900) })
}

fn limit(number: i64) -> Option<Limit> {
    Limit::from_number(number)
}

#[test]
fn share_is_taken_below_limit() {
    let taken = done(Write::Take { kind: Kind::Shared, lease_end: Some(NOW + 50) }, 1);
    assert_eq!(share(&FREE, b"me", lease(50), limit(1), NOW), taken);
    assert_eq!(share(&shares(None, 7), b"me", lease(50), None, NOW), taken);
    assert_eq!(share(&shares(None, 7), b"me", lease(50), limit(8), NOW), taken);
    assert_eq!(share(&shares(None, 7), b"me", lease(50), limit(7), NOW), Ok(Decision::Contended));
    assert_eq!(share(&held(Kind::Mutex, 1, None), b"you", None, None, NOW), Ok(Decision::Contended));
}

#[test]
fn repeated_share_is_confirmed_beyond_limit() {
    let own = shares(Some(Some(NOW + 100)), 3);
    assert_eq!(share(&own, b"me", lease(50), limit(1), NOW), done(Write::Confirm { lease_end: None }, 1));
    let longer = Write::Confirm { lease_end: Some(NOW + 101) };
    assert_eq!(share(&own, b"me", lease(101), limit(1), NOW), done(longer, 1));
}

#[test]
fn shares_and_other_kinds_exclude_each_other() {
    assert_eq!(acquire(&shares(None, 1), b"me", None, false, NOW), Ok(Decision::Contended));
    assert_eq!(reenter(&shares(None, 1), b"me", None, hold(1), NOW), Ok(Decision::Contended));
    assert_eq!(reenter(&shares(None, 1), b"me", None, hold(2), NOW), Err(Error::NotOwner));
}

#[test]
fn token_has_one_form_at_a_time() {
    let own = shares(Some(None), 1);
    for strict in [false, true] {
        assert_eq!(acquire(&own, b"me", None, strict, NOW), Err(Error::OtherForm));
    }
    for hold in [None, hold(1), hold(2)] {
        assert_eq!(reenter(&own, b"me", None, hold, NOW), Err(Error::OtherForm));
    }
    for kind in [Kind::Mutex, Kind::Reentrant] {
        assert_eq!(share(&held(kind, 1, None), b"me", None, None, NOW), Err(Error::OtherForm));
    }
}

#[test]
fn share_is_released_and_extended_by_its_token() {
    let own = shares(Some(Some(NOW + 100)), 3);
    assert_eq!(release(&own, b"me", None, None, NOW), done(Write::RemoveShare, 0));
    assert_eq!(release(&own, b"me", None, hold(1), NOW), done(Write::RemoveShare, 0));
    assert_eq!(release(&own, b"me", None, hold(3), NOW), Err(Error::HoldMismatch));
    assert_eq!(release(&shares(None, 3), b"me", None, None, NOW), Err(Error::NotOwner));
    let extend = |lock: &Lock<'_>, ms, add| extend(lock, b"me", lease(ms).unwrap(), add, NOW);
    assert_eq!(extend(&own, 30, true), done(Write::SetLease(NOW + 130), 130));
    assert_eq!(extend(&shares(Some(None), 3), 30, false), Err(Error::NoLease));
}

#[test]
fn share_end_is_exact_as_score() {
    // The score of a Sorted Set cannot be 2^53 + 1.
    assert_eq!(LATEST_SHARE_END, 9_007_199_254_740_991);
    assert_eq!(lease(500).unwrap().share_end_from(NOW), NOW + 500);
    assert_eq!(lease(500).unwrap().share_end_from(LATEST_SHARE_END - 499), LATEST_SHARE_END);
    let longest = LATEST_SHARE_END - NOW;
    assert!(share(&FREE, b"me", lease(longest), None, NOW).is_ok());
    assert_eq!(share(&FREE, b"me", lease(longest + 1), None, NOW), Err(Error::InvalidExpire));
    let own = shares(Some(Some(NOW + 100)), 1);
    assert_eq!(extend(&own, b"me", lease(longest).unwrap(), true, NOW), Err(Error::InvalidExpire));
    assert_eq!(share(&own, b"me", lease(longest + 1), None, NOW), Err(Error::InvalidExpire));
}

#[test]
fn limit_is_positive_and_below_2_to_31() {
    assert_eq!(limit(0), None);
    assert_eq!(limit(-1), None);
    assert_eq!(limit(i64::from(MAX_LIMIT)).map(Limit::number), Some(MAX_LIMIT));
    assert_eq!(limit(i64::from(MAX_LIMIT) + 1), None);
}

#[test]
fn endless_wait_is_capped_by_setting() {
    assert_eq!(BlockTimeout::Forever.deadline(100, 0), None);
    assert_eq!(BlockTimeout::Forever.deadline(100, 7), Some(107));
    assert_eq!(BlockTimeout::Ms(9).deadline(100, 0), Some(109));
    assert_eq!(BlockTimeout::Ms(9).deadline(100, 7), Some(107));
    assert_eq!(BlockTimeout::Ms(5).deadline(100, 7), Some(105));
}
