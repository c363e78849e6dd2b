//! Copies of one request whose leases and limits differ.

use super::*;
use crate::core::Limit;

/// A lease in milliseconds, and a limit. 0 means none.
type Options = (i64, i64);

/// The lease of a grant without a session, the lease with one, and the limit. 0 means none.
type Terms = (i64, i64, u32);

/// Adds a request for a share of lock "k".
fn share(waiting: &mut Locks, owner: &str, waiter: u64, (lease_ms, limit): Options) -> RequestId {
    let (lease, limit) = (Lease::from_ms(lease_ms), Limit::from_number(limit));
    let claim = Claim { kind: Kind::Shared, owner: owner.as_bytes().into(), lease, limit };
    let join = JoinRequest { db: 0, key: b"k", claim, waiter: WaiterId(waiter), now: NOW, deadline: None };
    waiting.join(join, NO_LIMIT).unwrap().request
}

/// Grants the lock to the first waiter.
fn granted(waiting: &mut Locks) -> Terms {
    let queue = queue(waiting);
    let grant = waiting.grant_first(queue, END).unwrap();
    let ms = |lease: Option<Lease>| lease.map_or(0, |lease| lease.end_from(0));
    (ms(grant.lease(false)), ms(grant.lease(true)), grant.claim.limit.map_or(0, Limit::number))
}

#[test]
fn only_copies_that_still_wait_count() {
    let cases: [(&[Options], usize, Terms); 8] = [
        (&[(1000, 1), (1000, 5)], 0, (1000, 1000, 5)),
        (&[(1000, 5), (1000, 1)], 1, (1000, 1000, 5)),
        (&[(1000, 1), (1000, 0)], 0, (1000, 1000, 0)),
        (&[(0, 0), (1000, 0)], 0, (1000, 1000, 0)),
        (&[(9000, 0), (1000, 0)], 0, (1000, 1000, 0)),
        (&[(9000, 0), (0, 0)], 0, (0, 0, 0)),
        (&[(0, 2), (1000, 3), (2000, 4)], 0, (2000, 2000, 3)),
        (&[(0, 2), (1000, 3), (0, 4)], 0, (0, 1000, 3)),
    ];
    for (copies, withdrawn, expected) in cases {
        let mut waiting = Locks::new();
        let requests: Vec<_> =
            (0..).zip(copies).map(|(number, &copy)| share(&mut waiting, "a", number, copy)).collect();
        waiting.withdraw_request(requests[withdrawn], Some(NOW + 50), END);
        assert_eq!(granted(&mut waiting), expected, "{copies:?} without {withdrawn}");
    }
}

#[test]
fn limit_that_rises_makes_a_review_due() {
    for (limits, is_due) in [([1, 5], true), ([1, 0], true), ([1, 1], false), ([5, 1], false)] {
        let mut waiting = Locks::new();
        let [withdrawn, _] = limits.map(|limit| share(&mut waiting, "a", limit as u64, (1000, limit)));
        let queue = queue(&waiting);
        waiting.withdraw_request(withdrawn, Some(NOW + 50), END);
        let due = waiting.pop_due(NOW, DueFilter::All);
        assert_eq!(due, is_due.then_some(Due::Review(queue)), "{limits:?}");
    }
}

#[test]
fn limit_behind_the_first_waiter_needs_no_review() {
    let mut waiting = Locks::new();
    share(&mut waiting, "first", 1, (1000, 1));
    let withdrawn = share(&mut waiting, "second", 2, (1000, 1));
    share(&mut waiting, "second", 3, (1000, 5));
    waiting.withdraw_request(withdrawn, Some(NOW + 50), END);
    assert_eq!(waiting.pop_due(NOW, DueFilter::All), None);
    assert_eq!(granted(&mut waiting), (1000, 1000, 1));
    assert_eq!(granted(&mut waiting), (1000, 1000, 5));
}

#[test]
fn grant_takes_the_lease_of_requests_it_retains() {
    let cases: [(&[i64], &[u64], i64, i64); 4] = [
        (&[1000, 9000], &[0], 1000, 1000),
        (&[1000, 9000], &[1], 9000, 9000),
        (&[0, 9000, 1000], &[0, 2], 0, 1000),
        (&[0, 9000, 1000], &[1, 2], 9000, 9000),
    ];
    for (leases, kept, lease_ms, in_session_ms) in cases {
        let mut waiting = Locks::new();
        (0..).zip(leases).for_each(|(number, &ms)| _ = share(&mut waiting, "a", number, (ms, 0)));
        let queue = queue(&waiting);
        let mut grant = waiting.grant_first(queue, END).unwrap();
        grant.retain(|request| kept.contains(&request.waiter.0));
        let ms = [false, true].map(|in_session| grant.lease(in_session).map_or(0, |lease| lease.end_from(0)));
        assert_eq!(ms, [lease_ms, in_session_ms], "{leases:?}, of which {kept:?}");
    }
}

/// A withdrawn request takes a few steps if the copies are equal, which is the usual case. At worst it takes two steps for each
/// remaining copy.
#[cfg(feature = "simulated")]
#[test]
fn withdrawn_copies_visit_few_others() {
    use crate::core::steps;

    use crate::core::limits::MAX_COPIES;
    let copies = MAX_COPIES as i64;
    for (limit_of, most) in
        [((|_| 3) as fn(i64) -> i64, 20 * MAX_COPIES), (|number| 1 + number, (20 + MAX_COPIES) * MAX_COPIES)]
    {
        let mut waiting = Locks::new();
        let join = |number| share(&mut waiting, "a", number as u64, (1000, limit_of(number)));
        let requests: Vec<_> = (0..copies).map(join).collect();
        steps::take();
        for request in requests {
            waiting.withdraw_request(request, None, END);
        }
        let count = steps::take();
        assert!(count <= most, "{count} steps, and at most {most}");
    }
}
