//! Planted defects: a double grant, a share too many, a waiter that is passed over, a token that falls.

use super::*;
use crate::token::Tokens;

struct Bench {
    start: Instant,
    lock: Lock,
    tokens: Vec<Token>,
}

const ALONE: bool = false;
const SHARE: bool = true;

impl Bench {
    fn new(limit: Option<usize>) -> Self {
        let tokens = Tokens::default();
        Self { start: Instant::now(), lock: Lock::with_limit(limit), tokens: (0..4).map(|_| tokens.fresh()).collect() }
    }

    /// The rules that holds break, each of (is a share, token, from, until).
    fn holds<const N: usize>(mut self, holds: [(bool, usize, u64, u64); N]) -> [Option<Rule>; N] {
        holds.map(|(is_share, number, from, until)| {
            let [from, until] = [from, until].map(|ms| self.start + Duration::from_millis(ms));
            let hold = Hold { token: self.tokens[number], is_share, from, until, one_request: true };
            self.lock.confirm(hold).map(|(rule, _)| rule)
        })
    }

    fn saw(mut self, at: u64, queue: &[usize]) -> Self {
        let queue = queue.iter().map(|&number| self.tokens[number]).collect();
        self.lock.saw_queue(self.start + Duration::from_millis(at), queue);
        self
    }
}

const ONE: Option<Rule> = Some("one holder, or shares alone");
const LIMIT: Option<Rule> = Some("no more shares than the limit");
const ORDER: Option<Rule> = Some("the queue is served in order");

#[test]
fn only_shares_overlap() {
    let holds = [(ALONE, 0, 10, 20), (ALONE, 1, 20, 30), (ALONE, 1, 20, 40), (ALONE, 3, 35, 30), (ALONE, 2, 39, 50)];
    assert_eq!(Bench::new(None).holds(holds), [None, None, None, None, ONE]);
    let holds = [(SHARE, 0, 10, 40), (SHARE, 1, 20, 30), (ALONE, 2, 40, 50), (ALONE, 3, 35, 39)];
    assert_eq!(Bench::new(None).holds(holds), [None, None, None, ONE]);
}

#[test]
fn shares_stay_within_limit_at_each_moment() {
    // Three overlap with the third, but never more than two at one moment.
    let holds = [(SHARE, 0, 10, 20), (SHARE, 1, 30, 40), (SHARE, 2, 10, 40), (SHARE, 3, 15, 18)];
    assert_eq!(Bench::new(Some(2)).holds(holds), [None, None, None, LIMIT]);
    let holds = [(SHARE, 0, 10, 20), (SHARE, 1, 20, 30), (SHARE, 2, 29, 31)];
    assert_eq!(Bench::new(Some(1)).holds(holds), [None, None, LIMIT]);
}

#[test]
fn first_in_queue_is_granted_first() {
    let queued = || Bench::new(None).saw(5, &[0, 1, 2]);
    assert_eq!(queued().holds([(ALONE, 0, 10, 20), (ALONE, 2, 30, 40), (ALONE, 1, 50, 60)]), [None, None, ORDER]);
    assert_eq!(queued().holds([(ALONE, 2, 30, 40), (ALONE, 1, 10, 20), (ALONE, 0, 25, 27)]), [None, None, ORDER]);
    assert_eq!(queued().holds([(SHARE, 1, 10, 20), (ALONE, 0, 30, 40)]), [None, ORDER], "a share overtakes");
}

#[test]
fn shares_of_one_grant_come_in_any_order() {
    let (bench, holds) = (Bench::new(None).saw(5, &[0, 1]), [(SHARE, 1, 10, 20), (SHARE, 0, 30, 40)]);
    assert_eq!(bench.holds(holds), [None, None]);
    let bench = Bench::new(None).saw(5, &[0, 1]).saw(12, &[0]);
    assert_eq!(bench.holds(holds), [None, ORDER], "it was still in the queue when the other held");
}

#[test]
fn fence_that_falls_is_found() {
    let (mut fences, start) = (Fences::default(), Instant::now());
    let mut draw = |is_lost: bool, from, until, fence| {
        let [from, until] = [from, until].map(|ms| start + Duration::from_millis(ms));
        fences.draw(|_| is_lost, from, until, fence)
    };
    assert_eq!([draw(false, 0, 1, 10), draw(false, 2, 5, 12)], [None, None]);
    assert_eq!(draw(false, 3, 4, 11), None, "both draws were under way");
    assert_eq!(draw(false, 6, 7, 12), Some(12));
    assert_eq!(draw(true, 10, 11, 3), None, "the counter was lost");
    assert_eq!(draw(false, 12, 13, 3), Some(3));
}
