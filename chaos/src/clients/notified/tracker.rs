//! The messages about one token on one channel: one for each wait, in time, and none that is not due.

use std::time::{Duration, Instant};

use super::SLACK;
use crate::evidence::ROUNDING;
use crate::report::{Finding, Rule};

const ONE: Rule = "one message for each wait";
pub const IN_TIME: Rule = "each wait ends with a message in time";
const EARLY: Rule = "a wait does not end before its time";
const DUE: Rule = "only messages that are due";

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Granted,
    Timeout,
    Withdrawn,
    Lost,
}

impl Event {
    /// Returns the event with the name of its counter.
    pub fn read(word: &str) -> Option<(Self, &'static str)> {
        match word {
            "granted" => Some((Self::Granted, "messages: granted")),
            "timeout" => Some((Self::Timeout, "messages: timeout")),
            "withdrawn" => Some((Self::Withdrawn, "messages: withdrawn")),
            "lost" => Some((Self::Lost, "messages: lost")),
            _ => None,
        }
    }
}

/// One token on one channel.
#[derive(Default)]
pub struct Tracker {
    /// The latest request, with its BLOCK.
    asked: Option<(Instant, Duration)>,
    /// The earliest end of any of the waits.
    earliest_end: Option<Instant>,
    /// How many messages may still come.
    due: u32,
    /// How many requests have no reply yet.
    open: u32,
    /// How many of these were sent before a moment without a listener, or in it.
    unheard: u32,
    /// The latest request waits, as far as is known, and a message must end the wait.
    waits: bool,
    /// A message came after the latest request was sent.
    heard_since: bool,
    pub released: bool,
}

impl Tracker {
    /// A request is sent.
    pub fn asked(&mut self, sent: Instant, block: Duration) {
        self.asked = Some((sent, block));
        let end = sent + block;
        self.earliest_end = Some(self.earliest_end.map_or(end, |earliest| earliest.min(end)));
        self.due += 1;
        self.open += 1;
        self.waits = false;
        self.heard_since = false;
    }

    /// A reply was read: with `waiting` the wait goes on until a message. `in_order` is for replies on the connection
    /// of the messages: all messages that came before belong to waits that are over.
    pub fn answered(&mut self, waiting: bool, in_order: bool) -> Finding {
        self.open = self.open.saturating_sub(1);
        let heard = self.unheard == 0;
        self.unheard = self.unheard.saturating_sub(1);
        if !waiting {
            return self.take_one("a reply ended the wait");
        }
        self.waits = heard && self.open == 0 && (in_order || !self.heard_since);
        if in_order {
            self.due = 1 + self.open;
        }
        None
    }

    /// Nothing listens for a moment: a message can get lost.
    pub fn unheard(&mut self) {
        self.waits = false;
        self.unheard = self.open;
    }

    /// The connection that asked is closed: no reply comes any more, and perhaps no message.
    pub fn closed(&mut self) {
        self.waits = false;
        (self.open, self.unheard) = (0, 0);
    }

    /// A message came. `may_be_lost`: the server may have restarted, or have become a replica.
    pub fn heard(&mut self, event: Event, received: Instant, may_be_lost: bool) -> Finding {
        self.waits = false;
        self.heard_since = self.asked.is_some_and(|(sent, _)| received >= sent);
        match event {
            Event::Timeout if self.earliest_end.is_none_or(|end| received + ROUNDING < end) => {
                Some((EARLY, "the message is timeout".to_owned()))
            }
            Event::Withdrawn if !self.released => Some((DUE, "withdrawn, without a RELEASE".to_owned())),
            Event::Lost if !may_be_lost => Some((DUE, "lost, from a server that goes on with all waits".to_owned())),
            _ => self.take_one(&format!("{event:?} came")),
        }
    }

    fn take_one(&mut self, what: &str) -> Finding {
        let Some(less) = self.due.checked_sub(1) else { return Some((ONE, format!("{what}, and no message is due"))) };
        self.due = less;
        None
    }

    /// Whether a request has no reply yet.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Whether a message must still come.
    pub fn expects(&self) -> bool {
        self.waits
    }

    /// By how much a message is overdue, of which stalls since then can explain a part.
    pub fn overdue(&self, now: Instant) -> Option<(Instant, Duration)> {
        let (sent, block) = self.asked.filter(|_| self.waits)?;
        let late = now.saturating_duration_since(sent).checked_sub(block + SLACK)?;
        Some((sent, late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Duration = Duration::from_millis(100);

    struct Bench {
        start: Instant,
        tracker: Tracker,
    }

    impl Bench {
        /// A request that is sent at 0 and waits until 100 ms.
        fn asked() -> Self {
            let mut bench = Self { start: Instant::now(), tracker: Tracker::default() };
            bench.tracker.asked(bench.start, BLOCK);
            bench
        }

        fn waiting() -> Self {
            let mut bench = Self::asked();
            assert_eq!(bench.tracker.answered(true, false), None);
            bench
        }

        fn heard(&mut self, event: Event, ms: u64) -> Option<Rule> {
            self.tracker.heard(event, self.start + Duration::from_millis(ms), false).map(|(rule, _)| rule)
        }

        fn is_overdue(&self, ms: u64) -> bool {
            self.tracker.overdue(self.start + Duration::from_millis(ms)).is_some()
        }
    }

    #[test]
    fn one_message_ends_a_wait() {
        let mut bench = Bench::waiting();
        assert_eq!(bench.heard(Event::Granted, 50), None);
        assert!(!bench.tracker.expects());
        assert_eq!(bench.heard(Event::Timeout, 150), Some(ONE));
        let mut bench = Bench::asked();
        assert_eq!(bench.tracker.answered(false, false), None);
        assert_eq!(bench.heard(Event::Granted, 50), Some(ONE), "the reply was the grant");
        let mut bench = Bench::asked();
        assert_eq!(bench.heard(Event::Granted, 50), None, "before its reply");
        assert_eq!(bench.tracker.answered(false, false).map(|(rule, _)| rule), Some(ONE));
    }

    #[test]
    fn missing_message_is_overdue() {
        let mut bench = Bench::waiting();
        assert!(!bench.is_overdue(599) && bench.is_overdue(601));
        bench.tracker.unheard();
        assert!(!bench.is_overdue(9999));
        let mut bench = Bench::asked();
        bench.tracker.unheard();
        assert_eq!(bench.tracker.answered(true, false), None);
        assert!(!bench.is_overdue(9999), "its reply was under way when nothing listened");
        bench.tracker.closed();
        assert!(!bench.is_overdue(9999));
    }

    #[test]
    fn early_timeout_and_message_without_cause_are_wrong() {
        assert_eq!(Bench::waiting().heard(Event::Timeout, 97), Some(EARLY));
        assert_eq!(Bench::waiting().heard(Event::Timeout, 99), None);
        assert_eq!(Bench::waiting().heard(Event::Withdrawn, 50), Some(DUE));
        assert_eq!(Bench::waiting().heard(Event::Lost, 50), Some(DUE));
        let mut bench = Bench::waiting();
        bench.tracker.released = true;
        assert_eq!(bench.heard(Event::Withdrawn, 50), None);
    }

    #[test]
    fn repeated_request_replaces_the_earlier_one() {
        let mut bench = Bench::waiting();
        bench.tracker.asked(bench.start + Duration::from_millis(50), BLOCK);
        assert_eq!(bench.tracker.answered(true, true), None);
        assert!(!bench.is_overdue(640) && bench.is_overdue(660));
        assert_eq!(bench.heard(Event::Timeout, 150), None);
        assert_eq!(bench.heard(Event::Timeout, 151), Some(ONE));
        // On another connection the first wait can end while the second request is under way.
        let mut bench = Bench::waiting();
        bench.tracker.asked(bench.start + BLOCK, BLOCK);
        assert_eq!(bench.heard(Event::Timeout, 101), None);
        assert_eq!(bench.tracker.answered(true, false), None);
        assert!(!bench.tracker.expects(), "it may have been the message of the second");
        assert_eq!(bench.heard(Event::Timeout, 201), None);
        assert_eq!(bench.heard(Event::Timeout, 202), Some(ONE));
    }
}
