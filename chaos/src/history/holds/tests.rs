//! Planted defects: a double grant, a share too many, a waiter that is passed over, a token that falls.

use super::*;
use crate::token::Tokens;

struct Bench {
    start: Instant,
    lock: Lock,
    tokens: Vec<Token>,
}

impl Bench {
    fn new(limit: Option<usize>) -> Self {
        let tokens = Tokens::default();
        Self { start: Instant::now(), lock: Lock::with_limit(limit), tokens: (0..4).map(|_| tokens.fresh()).collect() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn hold(&mut self, form: Form, number: usize, from: u64, until: u64) -> Option<Rule> {
        let (from, until) = (self.at(from), self.at(until));
        let hold = Hold { token: self.tokens[number], form, from, until, one_request: true };
        self.lock.confirm(hold).0.map(|(rule, _)| rule)
    }

    fn alone(&mut self, number: usize, from: u64, until: u64) -> Option<Rule> {
        self.hold(Form::Exclusive, number, from, until)
    }

    fn share(&mut self, number: usize, from: u64, until: u64) -> Option<Rule> {
        self.hold(Form::Share, number, from, until)
    }

    fn saw(&mut self, at: u64, queue: &[usize]) {
        let queue = queue.iter().map(|&number| self.tokens[number]).collect();
        self.lock.saw_queue(self.at(at), queue);
    }
}

const ONE: Option<Rule> = Some("one holder at a time");
const NO_SHARE: Option<Rule> = Some("no share during an exclusive hold");
const LIMIT: Option<Rule> = Some("no more shares than the limit");
const ORDER: Option<Rule> = Some("the queue is served in order");

#[test]
fn exclusive_holds_do_not_overlap() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.alone(0, 10, 20), None);
    assert_eq!(bench.alone(1, 20, 30), None);
    assert_eq!(bench.alone(1, 20, 40), None);
    assert_eq!(bench.alone(3, 35, 30), None, "it was over before it began");
    assert_eq!(bench.alone(2, 39, 50), ONE);
}

#[test]
fn shares_overlap_but_not_with_exclusive_hold() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.share(0, 10, 40), None);
    assert_eq!(bench.share(1, 20, 30), None);
    assert_eq!(bench.alone(2, 40, 50), None);
    assert_eq!(bench.alone(3, 35, 39), NO_SHARE);
    let mut bench = Bench::new(None);
    assert_eq!(bench.alone(0, 10, 20), None);
    assert_eq!(bench.share(1, 19, 30), NO_SHARE);
}

#[test]
fn shares_stay_within_limit_at_each_moment() {
    let mut bench = Bench::new(Some(2));
    assert_eq!(bench.share(0, 10, 20), None);
    assert_eq!(bench.share(1, 30, 40), None);
    assert_eq!(bench.share(2, 10, 40), None, "three overlap, but never more than two at one moment");
    assert_eq!(bench.share(3, 15, 18), LIMIT);
    let mut bench = Bench::new(Some(1));
    assert_eq!(bench.share(0, 10, 20), None);
    assert_eq!(bench.share(1, 20, 30), None);
    assert_eq!(bench.share(2, 29, 31), LIMIT);
}

#[test]
fn first_in_queue_is_granted_first() {
    let mut bench = Bench::new(None);
    bench.saw(5, &[0, 1, 2]);
    assert_eq!(bench.alone(0, 10, 20), None);
    assert_eq!(bench.alone(2, 30, 40), None);
    assert_eq!(bench.alone(1, 50, 60), ORDER);
    let mut bench = Bench::new(None);
    bench.saw(5, &[0, 1, 2]);
    assert_eq!(bench.alone(2, 30, 40), None);
    assert_eq!(bench.alone(1, 10, 20), None);
    assert_eq!(bench.alone(0, 25, 27), ORDER);
}

#[test]
fn share_does_not_overtake_exclusive_waiter() {
    let mut bench = Bench::new(None);
    bench.saw(5, &[0, 1]);
    assert_eq!(bench.share(1, 10, 20), None);
    assert_eq!(bench.alone(0, 30, 40), ORDER);
}

#[test]
fn shares_of_one_grant_come_in_any_order() {
    let mut bench = Bench::new(None);
    bench.saw(5, &[0, 1]);
    assert_eq!(bench.share(1, 10, 20), None);
    assert_eq!(bench.share(0, 30, 40), None);
    let mut bench = Bench::new(None);
    bench.saw(5, &[0, 1]);
    bench.saw(12, &[0]);
    assert_eq!(bench.share(1, 10, 20), None);
    assert_eq!(bench.share(0, 30, 40), ORDER, "it was still in the queue when the other held");
}

#[test]
fn fence_that_falls_is_found() {
    let (mut fences, start) = (Fences::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    assert_eq!(fences.draw(0, at(0), at(1), 10), None);
    assert_eq!(fences.draw(0, at(2), at(5), 12), None);
    assert_eq!(fences.draw(0, at(3), at(4), 11), None, "both draws were under way");
    assert_eq!(fences.draw(0, at(6), at(7), 12), Some(12));
    assert_eq!(fences.draw(1, at(8), at(9), 3), None, "the counter was lost");
    for number in 0..1000 {
        assert_eq!(fences.draw(1, at(10 + number), at(10 + number), 4 + i64::try_from(number).expect("small")), None);
    }
    assert_eq!(fences.draw(1, at(2000), at(2001), 500), Some(1003));
}
