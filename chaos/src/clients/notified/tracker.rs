//! The messages about one token on one channel: one for each wait, in time, and none that is not due.

use std::time::{Duration, Instant};

use crate::evidence::ROUNDING;
use crate::report::{Finding, Rule};

const ONE: Rule = "one message for each wait";
pub const IN_TIME: Rule = "each wait ends with a message in time";
const EARLY: Rule = "a wait does not end before its time";
const DUE: Rule = "only messages that are due";
/// The time that a message may take on a server that does not stall.
const SLACK: Duration = Duration::from_millis(500);

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
    /// A message came, or can have been lost, while a request had no reply.
    is_disturbed: bool,
    /// The latest request waits, and a message must end the wait.
    pub waits: bool,
    pub is_released: bool,
}

impl Tracker {
    /// A request is sent.
    pub fn asked(&mut self, sent: Instant, block: Duration) {
        let end = sent + block;
        (self.asked, self.waits) = (Some((sent, block)), false);
        self.earliest_end = Some(self.earliest_end.map_or(end, |earliest| earliest.min(end)));
        self.is_disturbed &= self.open > 0;
        (self.due, self.open) = (self.due + 1, self.open + 1);
    }

    /// A reply was read: with `waiting` the wait goes on until a message.
    pub fn answered(&mut self, waiting: bool) -> Finding {
        self.open = self.open.saturating_sub(1);
        self.waits = waiting && self.open == 0 && !self.is_disturbed;
        if waiting { None } else { self.take_one("a reply ended the wait") }
    }

    /// Nothing listens for a moment: a message can get lost.
    pub fn unheard(&mut self) {
        (self.waits, self.is_disturbed) = (false, true);
    }

    /// The connection that asked is closed: no reply comes any more, and perhaps no message.
    pub fn closed(&mut self) {
        (self.waits, self.open) = (false, 0);
    }

    /// A message came. `may_be_lost`: the server may have restarted, or have become a replica.
    pub fn heard(&mut self, event: &str, received: Instant, may_be_lost: bool) -> Finding {
        self.unheard();
        match event {
            "timeout" if self.earliest_end.is_none_or(|end| received + ROUNDING < end) => {
                Some((EARLY, "the message is timeout".to_owned()))
            }
            "withdrawn" if !self.is_released => Some((DUE, "withdrawn, without a RELEASE".to_owned())),
            "lost" if !may_be_lost => Some((DUE, "lost, from a server that goes on with all waits".to_owned())),
            _ => self.take_one(event),
        }
    }

    fn take_one(&mut self, what: &str) -> Finding {
        let Some(less) = self.due.checked_sub(1) else { return Some((ONE, format!("{what}, and no message is due"))) };
        self.due = less;
        None
    }

    /// Whether a reply or a message must still come.
    pub fn is_open(&self) -> bool {
        self.waits || self.open > 0
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

    /// A request that is sent at 0 and waits until 100 ms.
    fn asked(has_reply: bool) -> (Instant, Tracker) {
        let (start, mut tracker) = (Instant::now(), Tracker::default());
        tracker.asked(start, Duration::from_millis(100));
        assert!(!has_reply || tracker.answered(true).is_none());
        (start, tracker)
    }

    fn heard((start, tracker): &mut (Instant, Tracker), event: &str, ms: u64) -> Option<Rule> {
        tracker.heard(event, *start + Duration::from_millis(ms), false).map(|(rule, _)| rule)
    }

    fn is_overdue((start, tracker): &(Instant, Tracker), ms: u64) -> bool {
        tracker.overdue(*start + Duration::from_millis(ms)).is_some()
    }

    #[test]
    fn one_message_ends_a_wait() {
        let mut wait = asked(true);
        assert_eq!((heard(&mut wait, "granted", 50), wait.1.waits), (None, false));
        assert_eq!(heard(&mut wait, "timeout", 150), Some(ONE));
        let mut wait = asked(false);
        assert_eq!(wait.1.answered(false), None, "the reply ends it");
        assert_eq!(heard(&mut wait, "granted", 50), Some(ONE));
        let mut wait = asked(false);
        assert_eq!(heard(&mut wait, "granted", 50), None, "before its reply");
        assert_eq!(wait.1.answered(false).map(|(rule, _)| rule), Some(ONE));
    }

    #[test]
    fn missing_message_is_overdue() {
        let mut wait = asked(true);
        assert!(!is_overdue(&wait, 599) && is_overdue(&wait, 601));
        wait.1.asked(wait.0 + Duration::from_millis(50), Duration::from_millis(100));
        wait.1.answered(true);
        assert!(!is_overdue(&wait, 649) && is_overdue(&wait, 651), "the second request replaces the first");
        wait.1.unheard();
        assert!(!is_overdue(&wait, 9999));
        let mut wait = asked(false);
        wait.1.unheard();
        wait.1.answered(true);
        assert!(!is_overdue(&wait, 9999), "its reply was under way when nothing listened");
    }

    #[test]
    fn early_timeout_and_message_without_cause_are_wrong() {
        let rule = |event, ms| heard(&mut asked(true), event, ms);
        assert_eq!([rule("timeout", 97), rule("timeout", 99)], [Some(EARLY), None]);
        assert_eq!([rule("withdrawn", 50), rule("lost", 50)], [Some(DUE), Some(DUE)]);
        let mut wait = asked(true);
        wait.1.is_released = true;
        assert_eq!(heard(&mut wait, "withdrawn", 50), None);
    }
}
