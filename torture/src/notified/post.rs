//! The messages about one token on one channel: one for each wait, in time, and none that is not due.

use std::time::{Duration, Instant};

use crate::court::Rule;

const ONE: Rule = "one message for each wait";
const IN_TIME: Rule = "each wait ends with a message in time";
const EARLY: Rule = "a wait does not end before its time";
const DUE: Rule = "only messages that are due";

/// How late a message may be on a server that is held up by nothing.
const SLACK: Duration = Duration::from_millis(500);
/// The server counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Granted,
    Timeout,
    Withdrawn,
    Lost,
}

impl Event {
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "granted" => Some(Self::Granted),
            "timeout" => Some(Self::Timeout),
            "withdrawn" => Some(Self::Withdrawn),
            "lost" => Some(Self::Lost),
            _ => None,
        }
    }

    /// What the figures call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "messages: granted",
            Self::Timeout => "messages: timeout",
            Self::Withdrawn => "messages: withdrawn",
            Self::Lost => "messages: lost",
        }
    }
}

/// What is wrong with a message.
pub type Complaint = Option<(Rule, String)>;

/// One token on one channel.
#[derive(Default)]
pub struct Post {
    /// Of the latest request.
    asked: Option<(Instant, Duration)>,
    /// The earliest end of any of the waits.
    earliest_end: Option<Instant>,
    /// How many messages may come yet.
    due: u32,
    /// How many requests are not answered yet.
    open: u32,
    /// Of these, how many were sent when nobody listened, or before that.
    unheard: u32,
    /// The latest request waits, as far as is known, and will be told.
    waits: bool,
    /// A message came after the latest request was sent.
    told_since: bool,
    pub released: bool,
}

impl Post {
    /// A request is sent.
    pub fn asked(&mut self, sent: Instant, block: Duration) {
        self.asked = Some((sent, block));
        let end = sent + block;
        self.earliest_end = Some(self.earliest_end.map_or(end, |earliest| earliest.min(end)));
        self.due += 1;
        self.open += 1;
        self.waits = false;
        self.told_since = false;
    }

    /// A request was answered: with `waiting`, the wait goes on and a message will end it. `in_order` is for answers that come
    /// on the same connection as the messages: all that came before belong to waits that are over.
    pub fn answered(&mut self, waiting: bool, in_order: bool) -> Complaint {
        self.open = self.open.saturating_sub(1);
        let heard = self.unheard == 0;
        self.unheard = self.unheard.saturating_sub(1);
        if waiting {
            self.waits = heard && self.open == 0 && (in_order || !self.told_since);
            if in_order {
                self.due = 1 + self.open;
            }
            return None;
        }
        self.take_one("the wait was answered")
    }

    /// Nobody listens for a moment: its message may never come.
    pub fn unheard(&mut self) {
        self.waits = false;
        self.unheard = self.open;
    }

    /// The connection that asked is closed: nothing more is answered, and there may be no message.
    pub fn left(&mut self) {
        self.waits = false;
        (self.open, self.unheard) = (0, 0);
    }

    /// A message came.
    pub fn heard(&mut self, event: Event, received: Instant) -> Complaint {
        self.waits = false;
        self.told_since = self.asked.is_some_and(|(sent, _)| received >= sent);
        let complaint = match event {
            Event::Timeout if self.earliest_end.is_none_or(|end| received + ROUNDING < end) => {
                Some((EARLY, "it was told timeout".to_owned()))
            }
            Event::Withdrawn if !self.released => Some((DUE, "withdrawn, without a RELEASE".to_owned())),
            Event::Lost => Some((DUE, "lost, by a server that goes on with all waits".to_owned())),
            _ => None,
        };
        complaint.or_else(|| self.take_one(&format!("{event:?} came")))
    }

    /// A message came which says that the server cannot go on with the wait, as is true of one that begins anew.
    pub fn lost(&mut self) -> Complaint {
        self.waits = false;
        self.told_since = true;
        self.take_one("lost came")
    }

    fn take_one(&mut self, what: &str) -> Complaint {
        let Some(less) = self.due.checked_sub(1) else {
            return Some((ONE, format!("{what}, and no message is due")));
        };
        self.due = less;
        None
    }

    /// Whether a request is not answered yet.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Whether a message must come yet.
    pub fn expects(&self) -> bool {
        self.waits
    }

    /// Since when a message is overdue by more than this, of which faults may explain a part.
    pub fn overdue(&self, now: Instant) -> Option<(Instant, Duration)> {
        let (sent, block) = self.asked.filter(|_| self.waits)?;
        let late = (now - sent).checked_sub(block + SLACK)?;
        Some((sent, late))
    }

    /// The message has not come, although faults explain only so much.
    pub fn missing(late: Duration, bad: Duration) -> Complaint {
        (late > bad).then(|| (IN_TIME, format!("{late:?} too late already, of which faults explain {bad:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Duration = Duration::from_millis(100);

    struct Bench {
        start: Instant,
        post: Post,
    }

    impl Bench {
        /// A request that waits from 0 to 100 ms.
        fn waiting() -> Self {
            let mut bench = Self { start: Instant::now(), post: Post::default() };
            bench.post.asked(bench.start, BLOCK);
            assert_eq!(bench.post.answered(true, false), None);
            bench
        }

        fn heard(&mut self, event: Event, ms: u64) -> Option<Rule> {
            self.post.heard(event, self.start + Duration::from_millis(ms)).map(|(rule, _)| rule)
        }

        fn is_overdue(&self, ms: u64) -> bool {
            self.post.overdue(self.start + Duration::from_millis(ms)).is_some()
        }
    }

    #[test]
    fn one_message_ends_a_wait_and_no_more_come() {
        let mut bench = Bench::waiting();
        assert!(bench.post.expects());
        assert_eq!(bench.heard(Event::Granted, 50), None);
        assert!(!bench.post.expects());
        assert_eq!(bench.heard(Event::Timeout, 150), Some(ONE));
    }

    #[test]
    fn a_wait_that_is_lost_has_had_its_message() {
        let mut bench = Bench::waiting();
        assert_eq!(bench.post.lost(), None);
        assert!(!bench.post.expects());
        assert_eq!(bench.post.lost().map(|(rule, _)| rule), Some(ONE));
    }

    #[test]
    fn who_is_granted_the_lock_at_once_hears_nothing() {
        let mut bench = Bench { start: Instant::now(), post: Post::default() };
        bench.post.asked(bench.start, BLOCK);
        assert_eq!(bench.post.answered(false, false), None);
        assert!(!bench.is_overdue(5000));
        assert_eq!(bench.heard(Event::Granted, 50), Some(ONE));
        let mut bench = Bench { start: Instant::now(), post: Post::default() };
        bench.post.asked(bench.start, BLOCK);
        assert_eq!(bench.heard(Event::Granted, 50), None, "before its answer");
        assert_eq!(bench.post.answered(false, false).map(|(rule, _)| rule), Some(ONE));
    }

    #[test]
    fn a_message_that_does_not_come_is_overdue() {
        let mut bench = Bench::waiting();
        assert!(!bench.is_overdue(599));
        assert!(bench.is_overdue(601));
        assert!(Post::missing(Duration::from_millis(10), Duration::from_millis(9)).is_some());
        assert!(Post::missing(Duration::from_millis(10), Duration::from_millis(11)).is_none());
        bench.post.unheard();
        assert!(!bench.is_overdue(9999));
        let mut bench = Bench { start: Instant::now(), post: Post::default() };
        bench.post.asked(bench.start, BLOCK);
        bench.post.unheard();
        assert_eq!(bench.post.answered(true, false), None);
        assert!(!bench.is_overdue(9999), "its answer was under way when nobody listened");
        bench.post.asked(bench.start, BLOCK);
        assert_eq!(bench.post.answered(true, false), None);
        assert!(bench.is_overdue(9999));
        bench.post.left();
        assert!(!bench.is_overdue(9999));
    }

    #[test]
    fn a_timeout_before_the_time_is_wrong_and_so_is_what_was_not_called_for() {
        assert_eq!(Bench::waiting().heard(Event::Timeout, 97), Some(EARLY));
        assert_eq!(Bench::waiting().heard(Event::Timeout, 99), None);
        assert_eq!(Bench::waiting().heard(Event::Withdrawn, 50), Some(DUE));
        assert_eq!(Bench::waiting().heard(Event::Lost, 50), Some(DUE));
        let mut bench = Bench::waiting();
        bench.post.released = true;
        assert_eq!(bench.heard(Event::Withdrawn, 50), None);
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_request_before_it() {
        let mut bench = Bench::waiting();
        let again = bench.start + Duration::from_millis(50);
        bench.post.asked(again, BLOCK);
        assert_eq!(bench.post.answered(true, true), None);
        assert!(!bench.is_overdue(640));
        assert!(bench.is_overdue(660));
        assert_eq!(bench.heard(Event::Timeout, 150), None);
        assert_eq!(bench.heard(Event::Timeout, 151), Some(ONE));
    }

    #[test]
    fn the_first_wait_may_end_while_the_second_request_is_under_way() {
        let mut bench = Bench::waiting();
        bench.post.asked(bench.start + BLOCK, BLOCK);
        assert_eq!(bench.heard(Event::Timeout, 101), None);
        assert_eq!(bench.post.answered(true, false), None);
        assert!(!bench.post.expects(), "it may have been the message of the second");
        assert_eq!(bench.heard(Event::Timeout, 201), None);
        assert_eq!(bench.heard(Event::Timeout, 202), Some(ONE));
        let mut bench = Bench::waiting();
        bench.post.asked(bench.start + BLOCK, BLOCK);
        assert_eq!(bench.heard(Event::Timeout, 101), None);
        assert_eq!(bench.post.answered(true, true), None);
        assert!(bench.post.expects());
    }
}
