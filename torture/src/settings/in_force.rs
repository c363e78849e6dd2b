//! From when to when a setting was in force, or something certainly so.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Nobody asks what was in force longer ago than this; no wait is as long.
const REMEMBERED: Duration = Duration::from_secs(300);

#[derive(Clone, Copy)]
struct Span {
    from: Instant,
    until: Option<Instant>,
    value: u64,
}

/// A number with the times at which it may have been in force.
#[derive(Default)]
pub struct Setting(Mutex<Vec<Span>>);

impl Setting {
    /// The command that sets it is about to leave.
    pub fn begin(&self, value: u64) {
        let mut spans = self.spans();
        spans.retain(|span| span.until.is_none_or(is_remembered));
        spans.push(Span { from: Instant::now(), until: None, value });
    }

    /// The command was answered: what was set before is over.
    pub fn settled(&self) {
        let now = Instant::now();
        let mut spans = self.spans();
        let before = spans.len().saturating_sub(1);
        spans[..before].iter_mut().for_each(|span| span.until = span.until.or(Some(now)));
    }

    /// All that may have been in force at some time between these two.
    pub fn during(&self, from: Instant, until: Instant) -> Vec<u64> {
        let meets = |span: &&Span| span.from < until && span.until.is_none_or(|end| end > from);
        self.spans().iter().filter(meets).map(|span| span.value).collect()
    }

    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.0.lock().expect("no panic")
    }
}

/// Spans in which something was certainly so.
#[derive(Default)]
pub struct Spells(Mutex<Vec<(Instant, Instant)>>);

impl Spells {
    pub fn add(&self, from: Instant, until: Instant) {
        let mut spells = self.0.lock().expect("no panic");
        spells.retain(|(_, end)| is_remembered(*end));
        spells.push((from, until));
    }

    /// Whether it was so all the time.
    pub fn cover(&self, from: Instant, until: Instant) -> bool {
        self.0.lock().expect("no panic").iter().any(|(begun, end)| *begun <= from && until < *end)
    }

    /// It may be otherwise from now on.
    pub fn end(&self) {
        let now = Instant::now();
        self.0.lock().expect("no panic").iter_mut().for_each(|(_, end)| *end = now.min(*end));
    }
}

fn is_remembered(end: Instant) -> bool {
    end.elapsed() < REMEMBERED
}
