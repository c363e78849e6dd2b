use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::core::{Holder, LATEST_SHARE_END, Shares};

const NOW: UnixMs = 1_000_000;

/// The answers to all questions.
#[derive(Clone, Copy, Debug)]
struct Answers {
    has_waiter: bool,
    suspends_grants: bool,
    will_regain: bool,
    lease_change: Option<Error>,
    longest_lease: Option<Lease>,
    can_wait: bool,
    /// The number of waiting requests, if the caller has no place among them.
    waiting: Option<usize>,
    has_session_capacity: bool,
}

/// A server on which nothing restricts a request.
const FREELY: Answers = Answers {
    has_waiter: false,
    suspends_grants: false,
    will_regain: false,
    lease_change: None,
    longest_lease: None,
    can_wait: true,
    waiting: None,
    has_session_capacity: true,
};

impl Facts for Answers {
    fn will_regain(&self, _: UnixMs) -> bool {
        self.will_regain
    }

    fn must_wait_for_others(&self) -> bool {
        self.has_waiter
    }

    fn suspends_grants(&self) -> bool {
        self.suspends_grants
    }

    fn check_lease_change(&self) -> Result<(), Error> {
        self.lease_change.map_or(Ok(()), Err)
    }

    fn longest_lease(&self) -> Option<Lease> {
        self.longest_lease
    }

    fn can_wait(&self) -> bool {
        self.can_wait
    }

    fn may_join(&self, _kind: Kind, most: Limit) -> bool {
        self.waiting.is_none_or(|waiting| most.has_capacity(waiting))
    }

    fn has_session_capacity(&self, _kind: Kind) -> bool {
        self.has_session_capacity
    }
}

fn lease(ms: i64) -> Option<Lease> {
    Lease::from_ms(ms)
}

fn held(owner: &'static [u8], lease_end: Option<UnixMs>) -> Lock<'static> {
    Lock::Held(Holder { kind: Kind::Mutex, owner: Cow::Borrowed(owner), holds: 1, lease_end })
}

const ACQUIRE: Request = Request {
    action: Action::Acquire { strict: false },
    lease: None,
    session: false,
    grace: None,
    wait: Some(BlockTimeout::Forever),
    max_waiters: None,
};

const TAKEN: Verdict = Verdict::Done { write: Write::Take { kind: Kind::Mutex, lease_end: None }, reply: 1 };

#[test]
fn free_lock_is_taken_unless_others_wait_or_grants_are_suspended() {
    let admitted = |answers| admit(&Lock::<Option<UnixMs>>::Free, &ACQUIRE, b"me", NOW, &answers);
    assert_eq!(admitted(FREELY), Ok(TAKEN));
    assert_eq!(admitted(Answers { has_waiter: true, ..FREELY }), Ok(Verdict::Wait(BlockTimeout::Forever)));
    assert_eq!(admitted(Answers { suspends_grants: true, ..FREELY }), Ok(Verdict::Wait(BlockTimeout::Forever)));
    assert_eq!(admitted(Answers { has_waiter: true, can_wait: false, ..FREELY }), Ok(Verdict::Nil));
}

#[test]
fn request_without_block_gets_nil() {
    let request = Request { wait: None, ..ACQUIRE };
    assert_eq!(admit(&held(b"you", None), &request, b"me", NOW, &FREELY), Ok(Verdict::Nil));
}

#[test]
fn holder_confirms_while_grants_are_suspended_but_sets_no_lease() {
    let lock = held(b"me", Some(NOW + 100));
    let answers = Answers { suspends_grants: true, lease_change: Some(Error::MayBeReplaced), ..FREELY };
    let confirmed = Verdict::Done { write: Write::Confirm { lease_end: None }, reply: 1 };
    assert_eq!(admit(&lock, &ACQUIRE, b"me", NOW, &answers), Ok(confirmed));
    let longer = Request { lease: lease(200), ..ACQUIRE };
    assert_eq!(admit(&lock, &longer, b"me", NOW, &answers), Err(Error::MayBeReplaced));
}

#[test]
fn holder_does_not_wait_for_lock_to_be_returned_to_it() {
    let admitted = |request, answers| admit(&Lock::<Option<UnixMs>>::Free, &request, b"me", NOW, &answers);
    let answers = Answers { suspends_grants: true, will_regain: true, ..FREELY };
    assert_eq!(admitted(ACQUIRE, answers), Err(Error::JustBegun));
    let may_be_replaced = Answers { lease_change: Some(Error::MayBeReplaced), ..answers };
    assert_eq!(admitted(ACQUIRE, may_be_replaced), Err(Error::MayBeReplaced));
    assert_eq!(admitted(Request { wait: None, ..ACQUIRE }, answers), Ok(Verdict::Nil));
    let extend = Request { action: Action::Extend { add: false }, lease: lease(200), ..ACQUIRE };
    assert_eq!(admitted(extend, answers), Err(Error::NotHeld));
    assert_eq!(admitted(ACQUIRE, Answers { suspends_grants: false, ..answers }), Ok(TAKEN));
}

#[test]
fn added_lease_is_limited() {
    let extend = |add, ms| Request { action: Action::Extend { add }, lease: lease(ms), wait: None, ..ACQUIRE };
    let answers = Answers { longest_lease: lease(150), ..FREELY };
    let admitted = |request| admit(&held(b"me", Some(NOW + 100)), &request, b"me", NOW, &answers);
    assert_eq!(admitted(extend(true, 50)), Ok(Verdict::Done { write: Write::SetLease(NOW + 150), reply: 150 }));
    assert_eq!(admitted(extend(true, 51)), Err(Error::LeaseLimit));
    assert_eq!(extend(false, 151).check_lease(answers.longest_lease), Err(Error::LeaseLimit));
    assert_eq!(ACQUIRE.check_lease(answers.longest_lease), Err(Error::LeaseLimit), "a lock would have no lease");
    assert_eq!(ACQUIRE.check_lease(None), Ok(()));
    let release = Request { action: Action::Release { hold: None }, ..ACQUIRE };
    assert_eq!(release.check_lease(answers.longest_lease), Ok(()), "it takes no lock");
}

#[test]
fn session_needs_capacity_only_if_it_begins() {
    let request = Request { lease: lease(1000), session: true, ..ACQUIRE };
    let full = Answers { has_session_capacity: false, ..FREELY };
    assert_eq!(admit(&Lock::<Option<UnixMs>>::Free, &request, b"me", NOW, &full), Err(Error::SessionFull));
    assert_eq!(admit(&held(b"you", None), &request, b"me", NOW, &full), Err(Error::SessionFull));
    let leaving = Answers { can_wait: false, ..full };
    assert_eq!(admit(&held(b"you", None), &request, b"me", NOW, &leaving), Ok(Verdict::Nil));
    assert_eq!(admit(&held(b"me", None), &request, b"me", NOW, &FREELY), Err(Error::NoLease));
}

#[test]
fn last_release_ends_wait() {
    let release = Request { action: Action::Release { hold: None }, ..ACQUIRE };
    let freed = Verdict::Done { write: Write::Free, reply: 0 };
    assert!(!ACQUIRE.withdraws(&Ok(TAKEN)) && release.withdraws(&Ok(freed)));
    for error in [Error::NotHeld, Error::NotOwner, Error::WrongType] {
        assert!(release.withdraws(&Err(error)) && !ACQUIRE.withdraws(&Err(error)));
    }
    assert!(!release.withdraws(&Err(Error::HoldMismatch)));
}

#[test]
fn request_waits_only_if_fewer_wait_than_it_allows() {
    let request = Request { max_waiters: Limit::from_number(2), ..ACQUIRE };
    let admitted =
        |waiting, can_wait| admit(&held(b"you", None), &request, b"me", NOW, &Answers { waiting, can_wait, ..FREELY });
    assert_eq!(admitted(Some(1), true), Ok(Verdict::Wait(BlockTimeout::Forever)));
    assert_eq!(admitted(Some(2), true), Err(Error::TooManyWait));
    assert_eq!(admitted(None, true), Ok(Verdict::Wait(BlockTimeout::Forever)), "it has a place");
    assert_eq!(admitted(Some(2), false), Ok(Verdict::Nil));
    let free = admit(&Lock::<Option<UnixMs>>::Free, &request, b"me", NOW, &Answers { waiting: Some(2), ..FREELY });
    assert_eq!(free, Ok(TAKEN), "it does not wait");
}

fn any_lock() -> impl Strategy<Value = Lock<'static>> {
    let owner = prop_oneof![Just(b"me".as_slice()), Just(b"you".as_slice())];
    let end = prop_oneof![Just(None), (NOW - 5..NOW + 500).prop_map(Some)];
    let alone = (owner, 1..4_i64, end.clone(), any::<bool>()).prop_map(|(owner, holds, lease_end, is_mutex)| {
        let (kind, holds) = if is_mutex { (Kind::Mutex, 1) } else { (Kind::Reentrant, holds) };
        Lock::Held(Holder { kind, owner: Cow::Borrowed(owner), holds, lease_end })
    });
    let shared = (any::<bool>(), 1..4_usize, end).prop_map(|(is_own, held, lease_end)| {
        let own = Holder { kind: Kind::Shared, owner: Cow::Borrowed(b"me".as_slice()), holds: 1, lease_end };
        Lock::Shared(Shares { own: is_own.then_some(own), held, lease_end })
    });
    prop_oneof![Just(Lock::Free), alone, shared]
}

fn any_request() -> impl Strategy<Value = Request> {
    let hold = proptest::option::of(1..5_i64).prop_map(|number| number.and_then(HoldNumber::from_number));
    let limit = proptest::option::of(1..5_i64).prop_map(|number| number.and_then(Limit::from_number));
    let action = prop_oneof![
        any::<bool>().prop_map(|strict| Action::Acquire { strict }),
        hold.clone().prop_map(|hold| Action::Reenter { hold }),
        limit.prop_map(|limit| Action::Share { limit }),
        hold.prop_map(|hold| Action::Release { hold }),
        any::<bool>().prop_map(|add| Action::Extend { add }),
    ];
    let lease = proptest::option::of(1..600_i64).prop_map(|ms| ms.and_then(Lease::from_ms));
    let most = proptest::option::of(1..4_i64).prop_map(|number| number.and_then(Limit::from_number));
    (action, lease, any::<[bool; 2]>(), most).prop_map(|(action, lease, [session, waits], max_waiters)| {
        let is_extend = matches!(action, Action::Extend { .. });
        let lease = lease.or(if session || is_extend { Lease::from_ms(300) } else { None });
        let grace = lease.filter(|_| session && waits);
        Request { action, lease, session, grace, wait: waits.then_some(BlockTimeout::Ms(7)), max_waiters }
    })
}

fn any_answers() -> impl Strategy<Value = Answers> {
    let longest = proptest::option::of(1..700_i64).prop_map(|ms| ms.and_then(Lease::from_ms));
    let change = prop_oneof![3 => Just(None), 1 => Just(Some(Error::JustBegun))];
    let switches = any::<[bool; 5]>();
    let waiting = proptest::option::of(0..4_usize);
    (longest, change, switches, waiting).prop_map(
        |(longest_lease, lease_change, [has_waiter, suspends_grants, will_regain, can_wait, capacity], waiting)| {
            Answers {
                has_waiter,
                suspends_grants,
                will_regain,
                lease_change,
                longest_lease,
                can_wait,
                waiting,
                has_session_capacity: capacity,
            }
        },
    )
}

proptest! {
    #[test]
    fn facts_only_restrict(lock in any_lock(), request in any_request(), answers in any_answers()) {
        let is_allowed = request.check_lease(answers.longest_lease).is_ok();
        let (admitted, freely) =
            (admit(&lock, &request, b"me", NOW, &answers), admit(&lock, &request, b"me", NOW, &FREELY));
        match admitted {
            Ok(Verdict::Done { write, .. }) => {
                prop_assert_eq!(admitted, freely, "what is done is what the lock alone allows");
                if let Write::Take { .. } = write {
                    prop_assert!(!answers.has_waiter && !answers.suspends_grants, "it overtakes");
                } else if let Some(end) = write.lease_end() {
                    prop_assert_eq!(answers.lease_change, None);
                    let longest = answers.longest_lease.map_or(LATEST_SHARE_END, |longest| longest.end_from(NOW));
                    prop_assert!(end <= longest, "the lease is too long");
                }
                prop_assert!(!request.session || request.kind().is_none() || answers.has_session_capacity);
            }
            Ok(Verdict::Wait(timeout)) => {
                prop_assert!(answers.can_wait && request.wait == Some(timeout) && request.kind().is_some());
                prop_assert!(!request.session || answers.has_session_capacity);
                let others = answers.waiting.unwrap_or(0);
                prop_assert!(request.max_waiters.is_none_or(|most| most.has_capacity(others)), "too many wait");
            }
            Ok(Verdict::Nil) => prop_assert!(request.kind().is_some(), "a holder's request has a reply"),
            Err(Error::LeaseLimit) => {
                let adds = request.action == Action::Extend { add: true };
                prop_assert!(adds || !is_allowed);
            }
            Err(Error::TooManyWait) => prop_assert!(answers.can_wait && answers.waiting.is_some()),
            Err(error) => {
                let is_suspended = error == Error::JustBegun && answers.suspends_grants && answers.will_regain;
                let is_of_facts = is_suspended || Some(error) == answers.lease_change || error == Error::SessionFull;
                prop_assert!(is_of_facts || freely == Err(error), "an error that neither lock nor facts explain");
            }
        }
    }
}
