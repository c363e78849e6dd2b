//! What is known from outside about who held each lock when, and in which order clients stood in line.
//!
//! A **hold** is a span in which a token certainly held a lock: from the moment its client had read the grant to the
//! moment at which it sent a RELEASE or EXTEND that then succeeded, or to the end of its lease. Tokens are used once, so a
//! token that holds at both ends has held in between. Two holds overlap only if both are shares, and no more of them than the
//! lock's limit, which all who share it name.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::token::Token;

/// How many events of a lock are kept for the report.
const HISTORY: usize = 400;
/// How long holds and lines are kept. Far longer than any wait or lease.
const MEMORY: Duration = Duration::from_secs(30);

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Alone,
    Share,
}

/// A span in which a token held a lock.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub token: Token,
    pub form: Form,
    pub from: Instant,
    pub until: Instant,
    /// The grant answered the only request that was ever sent with this token. Such a token has stood in line without a
    /// break from when it was first seen there.
    pub one_request: bool,
}

/// What a check finds wrong.
pub type Finding = Option<(&'static str, String)>;

struct Event {
    at: Instant,
    text: String,
}

#[derive(Default)]
struct Account {
    events: VecDeque<Event>,
    holds: VecDeque<Hold>,
    /// Lines as they were seen at this time or later, first in line first.
    lines: VecDeque<(Instant, Vec<Token>)>,
    /// When a token was in line for the last time, as far as was seen.
    seen: HashMap<Token, Instant>,
    /// How many shares may be held at once.
    limit: Option<usize>,
}

/// An account for each key.
pub struct Ledger {
    started: Instant,
    accounts: Vec<Mutex<Account>>,
    /// What concerns all locks.
    common: Mutex<VecDeque<Event>>,
    most_together: AtomicUsize,
}

impl Ledger {
    /// For locks that have these limits.
    pub fn of(started: Instant, limits: impl Iterator<Item = Option<usize>>) -> Self {
        let account = |limit| Mutex::new(Account { limit, ..Account::default() });
        let accounts = limits.map(account).collect();
        Self { started, accounts, common: Mutex::default(), most_together: AtomicUsize::new(0) }
    }

    /// Notes for the report what happened to a key.
    pub fn note(&self, key: usize, at: Instant, text: String) {
        remember(&mut self.account(key).events, Event { at, text });
    }

    /// Notes for the report what concerned all locks.
    pub fn note_for_all(&self, at: Instant, text: String) {
        remember(&mut self.common.lock().expect("no panic"), Event { at, text });
    }

    /// Notes a line that was asked for then.
    pub fn saw_line(&self, key: usize, at: Instant, line: Vec<Token>) {
        let mut account = self.account(key);
        account.forget_before(at);
        account.seen.extend(line.iter().map(|token| (*token, at)));
        account.lines.push_back((at, line));
    }

    /// Notes a hold, which must not contradict what is known.
    pub fn confirm(&self, key: usize, hold: Hold) -> Finding {
        let mut account = self.account(key);
        account.forget_before(hold.until);
        let together = account.most_together(&hold);
        self.most_together.fetch_max(together, Ordering::Relaxed);
        let finding = account.overlap(&hold, together).or_else(|| account.overtaking(&hold));
        account.holds.retain(|other| other.token != hold.token);
        account.holds.push_back(hold);
        finding.map(|(rule, other)| (rule, format!("{}\n{}", self.shown(&hold), self.shown(&other))))
    }

    /// The most shares of one lock that were certainly held at once.
    pub fn most_together(&self) -> usize {
        self.most_together.load(Ordering::Relaxed)
    }

    /// What was noted about a key, one line each, in the order of time.
    pub fn history(&self, key: usize) -> String {
        let (account, common) = (self.account(key), self.common.lock().expect("no panic"));
        let first = account.events.iter().map(|event| event.at).min();
        let during = common.iter().filter(|event| first.is_some_and(|first| event.at >= first));
        let mut events: Vec<&Event> = account.events.iter().chain(during).collect();
        events.sort_by_key(|event| event.at);
        let mut text = String::new();
        for event in events {
            let _ = writeln!(text, "  {:10.1} {}", self.ms(event.at), event.text);
        }
        text
    }

    fn account(&self, key: usize) -> std::sync::MutexGuard<'_, Account> {
        self.accounts[key].lock().expect("no panic")
    }

    fn ms(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_secs_f64() * 1000.0
    }

    fn shown(&self, hold: &Hold) -> String {
        format!("{} held from {:.1} to {:.1} ms", hold.token, self.ms(hold.from), self.ms(hold.until))
    }
}

fn remember(events: &mut VecDeque<Event>, event: Event) {
    events.push_back(event);
    if events.len() > HISTORY {
        events.pop_front();
    }
}

impl Account {
    fn overlap(&self, hold: &Hold, together: usize) -> Option<(&'static str, Hold)> {
        let alone = |other: &&Hold| hold.form == Form::Alone || other.form == Form::Alone;
        if let Some(other) = self.beside(hold).find(alone) {
            let shared = hold.form != other.form;
            let rule = if shared { "no share beside a holder that is alone" } else { "one holder at a time" };
            return Some((rule, *other));
        }
        let too_many = self.limit.is_some_and(|limit| together > limit);
        let other = self.beside(hold).next().filter(|_| too_many);
        other.map(|other| ("no more shares than the limit", *other))
    }

    /// Holds of others during this one.
    fn beside(&self, hold: &Hold) -> impl Iterator<Item = &Hold> {
        let clash = |other: &&Hold| hold.from < other.until && other.from < hold.until;
        self.holds.iter().filter(|other| other.token != hold.token).filter(clash)
    }

    /// How many hold at once during this hold, itself included. The most do when one of them has just begun.
    fn most_together(&self, hold: &Hold) -> usize {
        let begins = self.beside(hold).map(|other| other.from).chain([hold.from]);
        let hold_at = |at: Instant| self.beside(hold).filter(|other| other.from <= at && at < other.until).count() + 1;
        begins.filter(|at| *at >= hold.from).map(hold_at).max().unwrap_or(1)
    }

    /// The order of the grants must be that of the line.
    fn overtaking(&self, hold: &Hold) -> Option<(&'static str, Hold)> {
        if !hold.one_request {
            return None;
        }
        let known = |token: &Token| self.holds.iter().find(|other| other.token == *token && other.one_request);
        for (_, line) in &self.lines {
            let Some(place) = line.iter().position(|token| *token == hold.token) else { continue };
            let (ahead, behind) = (&line[..place], &line[place + 1..]);
            let late = ahead.iter().filter_map(known).find(|other| self.granted_after(other, hold));
            let early = || behind.iter().filter_map(known).find(|other| self.granted_after(hold, other));
            if let Some(other) = late.or_else(early) {
                return Some(("first come, first served", *other));
            }
        }
        None
    }

    /// Whether one was certainly granted after the other: it still stood in line when the other had been told, or it held
    /// later, and not beside it.
    fn granted_after(&self, later: &Hold, earlier: &Hold) -> bool {
        let apart = later.form == Form::Alone || earlier.form == Form::Alone;
        let stood_in_line = self.seen.get(&later.token).is_some_and(|seen| *seen >= earlier.from);
        stood_in_line || (apart && later.from >= earlier.until)
    }

    fn forget_before(&mut self, now: Instant) {
        let Some(past) = now.checked_sub(MEMORY) else { return };
        while self.holds.front().is_some_and(|hold| hold.until < past) {
            self.holds.pop_front();
        }
        while self.lines.front().is_some_and(|(at, _)| *at < past) {
            self.lines.pop_front();
            self.seen.retain(|_, at| *at >= past);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Mint;

    struct Bench {
        start: Instant,
        ledger: Ledger,
        tokens: Vec<Token>,
    }

    impl Bench {
        fn new(limit: Option<usize>) -> Self {
            let (mint, start) = (Mint::default(), Instant::now());
            let tokens = (0..4).map(|_| mint.fresh()).collect();
            Self { start, ledger: Ledger::of(start, [limit].into_iter()), tokens }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn hold(&self, form: Form, who: usize, from: u64, until: u64) -> Option<&'static str> {
            let (from, until) = (self.at(from), self.at(until));
            let hold = Hold { token: self.tokens[who], form, from, until, one_request: true };
            self.ledger.confirm(0, hold).map(|(rule, _)| rule)
        }

        fn alone(&self, who: usize, from: u64, until: u64) -> Option<&'static str> {
            self.hold(Form::Alone, who, from, until)
        }

        fn share(&self, who: usize, from: u64, until: u64) -> Option<&'static str> {
            self.hold(Form::Share, who, from, until)
        }

        fn saw(&self, at: u64, line: &[usize]) {
            let line = line.iter().map(|&who| self.tokens[who]).collect();
            self.ledger.saw_line(0, self.at(at), line);
        }
    }

    #[test]
    fn holds_of_two_tokens_must_not_overlap() {
        let bench = Bench::new(None);
        assert_eq!(bench.alone(0, 10, 20), None);
        assert_eq!(bench.alone(1, 20, 30), None);
        assert_eq!(bench.alone(1, 20, 40), None);
        assert_eq!(bench.alone(2, 39, 50), Some("one holder at a time"));
    }

    #[test]
    fn shares_overlap_but_not_with_a_holder_that_is_alone() {
        let bench = Bench::new(None);
        assert_eq!(bench.share(0, 10, 40), None);
        assert_eq!(bench.share(1, 20, 30), None);
        assert_eq!(bench.ledger.most_together(), 2);
        assert_eq!(bench.alone(2, 40, 50), None);
        assert_eq!(bench.alone(3, 35, 39), Some("no share beside a holder that is alone"));
        let bench = Bench::new(None);
        assert_eq!(bench.alone(0, 10, 20), None);
        assert_eq!(bench.share(1, 19, 30), Some("no share beside a holder that is alone"));
    }

    #[test]
    fn no_more_shares_than_the_limit_are_held_at_one_moment() {
        let bench = Bench::new(Some(2));
        assert_eq!(bench.share(0, 10, 20), None);
        assert_eq!(bench.share(1, 30, 40), None);
        assert_eq!(bench.share(2, 10, 40), None, "there are never more than two, although three are beside each other");
        assert_eq!(bench.share(3, 15, 18), Some("no more shares than the limit"));
        let bench = Bench::new(Some(1));
        assert_eq!(bench.share(0, 10, 20), None);
        assert_eq!(bench.share(1, 20, 30), None);
        assert_eq!(bench.share(2, 29, 31), Some("no more shares than the limit"));
    }

    #[test]
    fn who_was_seen_ahead_holds_first() {
        let bench = Bench::new(None);
        bench.saw(5, &[0, 1, 2]);
        assert_eq!(bench.alone(0, 10, 20), None);
        assert_eq!(bench.alone(2, 30, 40), None);
        assert_eq!(bench.alone(1, 50, 60), Some("first come, first served"));
        let bench = Bench::new(None);
        bench.saw(5, &[0, 1, 2]);
        assert_eq!(bench.alone(2, 30, 40), None);
        assert_eq!(bench.alone(1, 10, 20), None);
        assert_eq!(bench.alone(0, 25, 27), Some("first come, first served"));
    }

    #[test]
    fn a_reader_does_not_overtake_a_writer() {
        let bench = Bench::new(None);
        bench.saw(5, &[0, 1]);
        assert_eq!(bench.share(1, 10, 20), None);
        assert_eq!(bench.alone(0, 30, 40), Some("first come, first served"));
    }

    #[test]
    fn shares_may_be_told_in_any_order_but_not_while_who_was_ahead_still_stands_in_line() {
        let bench = Bench::new(None);
        bench.saw(5, &[0, 1]);
        assert_eq!(bench.share(1, 10, 20), None);
        assert_eq!(bench.share(0, 30, 40), None);
        let bench = Bench::new(None);
        bench.saw(5, &[0, 1]);
        bench.saw(12, &[0]);
        assert_eq!(bench.share(1, 10, 20), None);
        assert_eq!(bench.share(0, 30, 40), Some("first come, first served"));
    }
}
