//! Spans of time in which something was so.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Spans that ended so long ago are forgotten. No wait is as long.
const REMEMBERED: Duration = Duration::from_secs(300);

#[derive(Clone, Copy)]
struct Span<T> {
    from: Instant,
    /// `None` as long as the span goes on.
    until: Option<Instant>,
    value: T,
}

/// All spans of one kind, in the order in which they were added.
pub struct Spans<T>(Mutex<Vec<Span<T>>>);

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> Spans<T> {
    pub fn beginning_with(value: T) -> Self {
        let spans = Self::default();
        spans.begin(value);
        spans
    }

    pub fn begin(&self, value: T) {
        self.push(Instant::now(), None, value);
    }

    pub fn add(&self, from: Instant, until: Instant, value: T) {
        self.push(from, Some(until), value);
    }

    pub fn mark(&self, value: T) {
        let now = Instant::now();
        self.add(now, now, value);
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

    /// Ends the span that began last now, and gives it its value.
    pub fn end_last(&self, value: T) {
        if let Some(last) = self.all().last_mut() {
            (last.until, last.value) = (Some(Instant::now()), value);
        }
    }

    pub fn is_open(&self) -> bool {
        self.all().iter().any(|span| span.until.is_none())
    }

    /// The values of the spans that have a moment between these two.
    pub fn during(&self, from: Instant, until: Instant) -> Vec<T> {
        let meets = |span: &&Span<T>| span.from < until && span.until.is_none_or(|end| end > from);
        self.all().iter().filter(meets).map(|span| span.value).collect()
    }

    /// The beginning of the first span that has a moment after this one.
    pub fn first_since(&self, moment: Instant) -> Option<Instant> {
        self.all().iter().find(|span| span.until.is_none_or(|end| end > moment)).map(|span| span.from)
    }

    pub fn any_since(&self, moment: Instant) -> bool {
        self.first_since(moment).is_some()
    }

    /// Whether one span with a value that fits lasts from before the first moment until after the second.
    pub fn cover(&self, from: Instant, until: Instant, fits: impl Fn(T) -> bool) -> bool {
        let covers = |span: &Span<T>| span.from <= from && span.until.is_none_or(|end| until < end);
        self.all().iter().any(|span| fits(span.value) && covers(span))
    }

    /// Whether one span with a value that fits lies between these two.
    pub fn any_within(&self, from: Instant, until: Instant, fits: impl Fn(T) -> bool) -> bool {
        let is_within = |span: &Span<T>| span.from > from && span.until.is_some_and(|end| end < until);
        self.all().iter().any(|span| fits(span.value) && is_within(span))
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
        let spans = Spans::beginning_with(1);
        let first = later();
        spans.begin(2);
        let both = later();
        spans.settle();
        let last = later();
        assert_eq!(spans.during(first, both), [1, 2]);
        assert_eq!(spans.during(last, later()), [2]);
        assert!(spans.cover(last, later(), |value| value == 2) && !spans.cover(first, last, |value| value == 2));
        spans.end_all();
        assert!(spans.during(later(), later()).is_empty() && !spans.is_open());
    }

    #[test]
    fn span_that_ended_is_found_from_before_its_end() {
        let spans = Spans::default();
        let before = later();
        spans.begin(false);
        let during = later();
        assert!(spans.any_since(during) && spans.is_open());
        spans.end_last(true);
        let after = later();
        assert!(spans.first_since(before).is_some_and(|begun| before < begun && begun < during));
        assert!(spans.any_since(during) && !spans.any_since(after));
        assert!(spans.any_within(before, after, |value| value) && !spans.any_within(before, after, |value| !value));
        assert!(!spans.any_within(during, after, |_| true) && !spans.any_within(before, during, |_| true));
    }
}
