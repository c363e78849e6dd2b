//! Spans of time in which something was so.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Spans that ended so long ago are forgotten. No wait is as long.
const REMEMBERED: Duration = Duration::from_secs(300);

#[derive(Clone, Copy)]
pub struct Span<T> {
    pub from: Instant,
    /// `None` as long as the span goes on.
    pub until: Option<Instant>,
    pub value: T,
}

/// All spans of one kind, in the order in which they were added.
pub struct Spans<T>(Mutex<Vec<Span<T>>>);

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> Spans<T> {
    /// Begins a span now.
    pub fn begin(&self, value: T) {
        self.push(Instant::now(), None, value);
    }

    pub fn add(&self, from: Instant, until: Instant, value: T) {
        self.push(from, Some(until), value);
    }

    /// Ends all spans now that would go on.
    pub fn end_all(&self) {
        let now = Instant::now();
        self.all().iter_mut().for_each(|span| span.until = span.until.map(|end| end.min(now)).or(Some(now)));
    }

    /// Ends all spans now but the one that began last.
    pub fn settle(&self) {
        let now = Instant::now();
        let mut all = self.all();
        let before = all.len().saturating_sub(1);
        all[..before].iter_mut().for_each(|span| span.until = span.until.or(Some(now)));
    }

    /// The values of the spans that have a moment between these two.
    pub fn during(&self, from: Instant, until: Instant) -> Vec<T> {
        let meets = |span: &&Span<T>| span.from < until && span.until.is_none_or(|end| end > from);
        self.all().iter().filter(meets).map(|span| span.value).collect()
    }

    /// Whether one span with a value that fits lasts from before the first moment until after the second.
    pub fn cover(&self, from: Instant, until: Instant, fits: impl Fn(T) -> bool) -> bool {
        let covers = |span: &Span<T>| span.from <= from && span.until.is_none_or(|end| until < end);
        self.all().iter().any(|span| fits(span.value) && covers(span))
    }

    fn push(&self, from: Instant, until: Option<Instant>, value: T) {
        let mut all = self.all();
        all.retain(|span| span.until.is_none_or(|end| end.elapsed() < REMEMBERED));
        all.push(Span { from, until, value });
    }

    fn all(&self) -> MutexGuard<'_, Vec<Span<T>>> {
        self.0.lock().expect("no panic")
    }
}

/// When FLUSHALL removed all locks. A lock that was granted before has no promises after it; and a token that certainly
/// held a lock before does not hold it after it. The value of a span is whether all databases were certainly flushed.
#[derive(Default)]
pub struct Flushes {
    spans: Spans<bool>,
    suspended: AtomicU32,
}

/// No flush begins while this exists.
pub struct Suspended<'f>(&'f Flushes);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.0.suspended.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Flushes {
    /// The command is about to be sent.
    pub fn begin(&self) {
        self.spans.begin(false);
    }

    /// The reply was read, or the connection is closed.
    pub fn end(&self, is_certain: bool) {
        if let Some(last) = self.spans.all().last_mut() {
            (last.until, last.value) = (Some(Instant::now()), is_certain);
        }
    }

    /// Suspends flushes; one can be under way.
    pub fn suspend(&self) -> Suspended<'_> {
        self.suspended.fetch_add(1, Ordering::SeqCst);
        Suspended(self)
    }

    pub fn are_suspended(&self) -> bool {
        self.suspended.load(Ordering::SeqCst) > 0
    }

    /// The beginning of the first flush that can come after a request of this time.
    pub fn first_since(&self, asked: Instant) -> Option<Instant> {
        let all = self.spans.all();
        all.iter().find(|span| span.until.is_none_or(|ended| ended > asked)).map(|span| span.from)
    }

    pub fn any_since(&self, asked: Instant) -> bool {
        self.first_since(asked).is_some()
    }

    /// Whether everything was certainly flushed at some time between these two.
    pub fn took_all(&self, from: Instant, until: Instant) -> bool {
        let within = |span: &Span<bool>| span.from > from && span.until.is_some_and(|ended| ended < until);
        self.spans.all().iter().any(|span| span.value && within(span))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    fn later() -> Instant {
        sleep(Duration::from_millis(1));
        let now = Instant::now();
        sleep(Duration::from_millis(1));
        now
    }

    #[test]
    fn value_counts_until_the_next_is_settled() {
        let spans = Spans::default();
        spans.begin(1);
        let first = later();
        spans.begin(2);
        let both = later();
        spans.settle();
        let last = later();
        assert_eq!(spans.during(first, both), [1, 2]);
        assert_eq!(spans.during(last, later()), [2]);
        assert!(spans.cover(last, later(), |value| value == 2) && !spans.cover(first, last, |value| value == 2));
        spans.end_all();
        assert!(spans.during(later(), later()).is_empty());
    }

    #[test]
    fn request_before_the_reply_can_be_flushed() {
        let flushes = Flushes::default();
        let before = later();
        flushes.begin();
        let during = later();
        assert!(flushes.any_since(during), "the flush is under way");
        flushes.end(true);
        let after = later();
        assert!(flushes.first_since(before).is_some_and(|begun| before < begun && begun < during));
        assert!(flushes.any_since(during) && !flushes.any_since(after));
        assert!(flushes.took_all(before, after));
        assert!(!flushes.took_all(during, after) && !flushes.took_all(before, during));
        let flushes = Flushes::default();
        let before = later();
        flushes.begin();
        flushes.end(false);
        assert!(!flushes.took_all(before, later()), "a part of the keys only");
    }

    #[test]
    fn flushes_are_suspended_until_the_last_guard_is_dropped() {
        let flushes = Flushes::default();
        let (one, other) = (flushes.suspend(), flushes.suspend());
        drop(one);
        assert!(flushes.are_suspended());
        drop(other);
        assert!(!flushes.are_suspended());
    }
}
