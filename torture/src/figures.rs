//! What the run has done so far.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Figures {
    started: Instant,
    pub requests: Count,
    /// Requests that were told that they hold the lock.
    pub grants: Count,
    /// Grants after waiting, as the server counts them.
    pub handovers: Count,
    /// The most shares of one lock that were held at once.
    pub most_together: Count,
    faults: Tally,
    met: Tally,
    longest_wait: AtomicU64,
}

#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.load(Ordering::Relaxed).fmt(f)
    }
}

/// How often each kind of thing happened.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    fn add(&self, kind: &'static str) {
        *self.0.lock().expect("no panic").entry(kind).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().expect("no panic");
        let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        f.write_str(if counts.is_empty() { "none" } else { "" })?;
        f.write_str(&counts.join(", "))
    }
}

impl Figures {
    pub fn since(started: Instant) -> Self {
        Self {
            started,
            requests: Count::default(),
            grants: Count::default(),
            handovers: Count::default(),
            most_together: Count::default(),
            faults: Tally::default(),
            met: Tally::default(),
            longest_wait: AtomicU64::new(0),
        }
    }

    pub fn fault(&self, kind: &'static str) {
        self.faults.add(kind);
    }

    /// Something happened that is worth to be met in every run.
    pub fn met(&self, kind: &'static str) {
        self.met.add(kind);
    }

    /// A client has waited for so long for an answer.
    pub fn waited(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.longest_wait.fetch_max(ms, Ordering::Relaxed);
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} s, {} requests, {} grants, {} hand-overs; met: {}, {} shares at once; faults: {}; longest wait for an answer {} ms",
            self.started.elapsed().as_secs_f64(),
            self.requests,
            self.grants,
            self.handovers,
            self.met,
            self.most_together,
            self.faults,
            self.longest_wait.load(Ordering::Relaxed),
        )
    }
}
