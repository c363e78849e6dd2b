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
        self.add(Instant::now(), None, value);
    }

    pub fn mark(&self, value: T) {
        let now = Instant::now();
        self.add(now, Some(now), value);
    }

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

    pub fn is_open(&self) -> bool {
        self.all().iter().any(|span| span.until.is_none())
    }

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

    /// Whether one span lasts from before the first moment until after the second.
    pub fn cover(&self, from: Instant, until: Instant) -> bool {
        let covers = |span: &Span<T>| span.from <= from && span.until.is_none_or(|end| until < end);
        self.all().iter().any(covers)
    }

    pub fn add(&self, from: Instant, until: Option<Instant>, value: T) {
        let mut all = self.all();
        all.retain(|span| span.until.is_none_or(|end| end.elapsed() < REMEMBERED));
        all.push(Span { from, until, value });
    }

    fn all(&self) -> MutexGuard<'_, Vec<Span<T>>> {
        self.0.lock().expect("no panic")
    }
}

#[test]
fn value_counts_until_the_next_is_settled() {
    let later = || {
        let now = Instant::now() + Duration::from_millis(1);
        std::thread::sleep(Duration::from_millis(2));
        now
    };
    let spans = Spans::beginning_with(1);
    let first = later();
    spans.begin(2);
    let both = later();
    spans.settle();
    let last = later();
    assert_eq!([spans.during(first, both), spans.during(last, later())], [vec![1, 2], vec![2]]);
    assert!(spans.cover(last, later()) && !spans.cover(first, last));
    spans.end_all();
    assert!(!spans.is_open() && spans.any_since(last) && !spans.any_since(later()));
    assert!(spans.first_since(both).is_some_and(|begun| begun < first), "the first value was in force then");
}
