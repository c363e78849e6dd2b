//! What is known from outside about who held each lock when, and in which order clients stood in line.
//!
//! A **hold** is a span in which a token certainly held a lock: from the moment its client had read the grant to the
//! moment at which it sent a RELEASE or EXTEND that then succeeded. Tokens are used once, so a token that holds at both
//! ends has held in between, and holds of two tokens never overlap.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::token::Token;

/// How many events of a lock are kept for the report.
const HISTORY: usize = 120;
/// How long holds and lines are kept. Far longer than any wait or lease.
const MEMORY: Duration = Duration::from_secs(30);

/// A span in which a token held a lock.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub token: Token,
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
    /// Lines as they were seen, first in line first.
    lines: VecDeque<(Instant, Vec<Token>)>,
}

/// An account for each key.
pub struct Ledger {
    started: Instant,
    accounts: Vec<Mutex<Account>>,
    /// What concerns all locks.
    common: Mutex<VecDeque<Event>>,
}

impl Ledger {
    pub fn of(started: Instant, keys: usize) -> Self {
        Self { started, accounts: (0..keys).map(|_| Mutex::default()).collect(), common: Mutex::default() }
    }

    /// Notes for the report what happened to a key.
    pub fn note(&self, key: usize, at: Instant, text: String) {
        remember(&mut self.account(key).events, Event { at, text });
    }

    /// Notes for the report what concerned all locks.
    pub fn note_for_all(&self, at: Instant, text: String) {
        remember(&mut self.common.lock().expect("no panic"), Event { at, text });
    }

    /// Notes a line as it was seen at one moment.
    pub fn saw_line(&self, key: usize, at: Instant, line: Vec<Token>) {
        let mut account = self.account(key);
        account.forget_before(at);
        account.lines.push_back((at, line));
    }

    /// Notes a hold, which must not contradict what is known.
    pub fn confirm(&self, key: usize, hold: Hold) -> Finding {
        let mut account = self.account(key);
        account.forget_before(hold.until);
        let finding = account.overlap(&hold).or_else(|| account.overtaking(&hold));
        account.holds.retain(|other| other.token != hold.token);
        account.holds.push_back(hold);
        finding.map(|(rule, other)| (rule, format!("{}\n{}", self.shown(&hold), self.shown(&other))))
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
    fn overlap(&self, hold: &Hold) -> Option<(&'static str, Hold)> {
        let others = self.holds.iter().filter(|other| other.token != hold.token);
        let clash = |other: &&Hold| hold.from < other.until && other.from < hold.until;
        others.copied().find(|other| clash(&other)).map(|other| ("one holder at a time", other))
    }

    /// Holds do not overlap, so their order is the order of the grants. It must be that of the line.
    fn overtaking(&self, hold: &Hold) -> Option<(&'static str, Hold)> {
        if !hold.one_request {
            return None;
        }
        let known = |token: &Token| self.holds.iter().find(|other| other.token == *token && other.one_request);
        for (_, line) in &self.lines {
            let Some(place) = line.iter().position(|token| *token == hold.token) else { continue };
            let (ahead, behind) = (&line[..place], &line[place + 1..]);
            let late = ahead.iter().filter_map(known).find(|other| other.from >= hold.until);
            let early = || behind.iter().filter_map(known).find(|other| other.until <= hold.from);
            if let Some(other) = late.or_else(early) {
                return Some(("first come, first served", *other));
            }
        }
        None
    }

    fn forget_before(&mut self, now: Instant) {
        let Some(past) = now.checked_sub(MEMORY) else { return };
        while self.holds.front().is_some_and(|hold| hold.until < past) {
            self.holds.pop_front();
        }
        while self.lines.front().is_some_and(|(at, _)| *at < past) {
            self.lines.pop_front();
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
        fn new() -> Self {
            let (mint, start) = (Mint::default(), Instant::now());
            Self { start, ledger: Ledger::of(start, 1), tokens: (0..3).map(|_| mint.fresh()).collect() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn hold(&self, who: usize, from: u64, until: u64) -> Option<&'static str> {
            let (from, until) = (self.at(from), self.at(until));
            let hold = Hold { token: self.tokens[who], from, until, one_request: true };
            self.ledger.confirm(0, hold).map(|(rule, _)| rule)
        }
    }

    #[test]
    fn holds_of_two_tokens_must_not_overlap() {
        let bench = Bench::new();
        assert_eq!(bench.hold(0, 10, 20), None);
        assert_eq!(bench.hold(1, 20, 30), None);
        assert_eq!(bench.hold(1, 20, 40), None);
        assert_eq!(bench.hold(2, 39, 50), Some("one holder at a time"));
    }

    #[test]
    fn who_was_seen_ahead_holds_first() {
        let line = |bench: &Bench| bench.ledger.saw_line(0, bench.at(5), bench.tokens.clone());
        let bench = Bench::new();
        line(&bench);
        assert_eq!(bench.hold(0, 10, 20), None);
        assert_eq!(bench.hold(2, 30, 40), None);
        assert_eq!(bench.hold(1, 50, 60), Some("first come, first served"));
        let bench = Bench::new();
        line(&bench);
        assert_eq!(bench.hold(2, 30, 40), None);
        assert_eq!(bench.hold(1, 10, 20), None);
        assert_eq!(bench.hold(0, 25, 27), Some("first come, first served"));
    }
}
