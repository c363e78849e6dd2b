//! What the run has done so far.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Figures {
    started: Instant,
    pub requests: Count,
    /// Requests that were told that they hold the lock.
    pub grants: Count,
    /// Grants after waiting, as the servers count them.
    pub handovers: Handovers,
    /// The most shares of one lock that were held at once.
    pub most_together: Count,
    faults: Tally,
    met: Tally,
    longest_wait: AtomicU64,
    /// How much more memory the server uses when all have gone than before, in bytes.
    pub memory_kept: AtomicI64,
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

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// What each server has counted when it was looked at last, by what it calls itself.
#[derive(Default)]
pub struct Handovers(Mutex<BTreeMap<String, u64>>);

impl Handovers {
    pub fn saw(&self, server: String, count: u64) {
        self.0.lock().expect("no panic").insert(server, count);
    }

    fn all(&self) -> u64 {
        self.0.lock().expect("no panic").values().sum()
    }
}

/// How often each kind of thing happened.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    fn add(&self, kind: &'static str) {
        *self.0.lock().expect("no panic").entry(kind).or_default() += 1;
    }

    fn has(&self, kind: &str) -> bool {
        self.0.lock().expect("no panic").contains_key(kind)
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
            handovers: Handovers::default(),
            most_together: Count::default(),
            faults: Tally::default(),
            met: Tally::default(),
            longest_wait: AtomicU64::new(0),
            memory_kept: AtomicI64::new(0),
        }
    }

    pub fn fault(&self, kind: &'static str) {
        self.faults.add(kind);
    }

    /// Something happened that is worth to be met in every run.
    pub fn met(&self, kind: &'static str) {
        self.met.add(kind);
    }

    /// Whether it has happened.
    pub fn has_met(&self, kind: &str) -> bool {
        self.met.has(kind)
    }

    /// What every run must have, and this one has not.
    pub fn missing(&self) -> Option<&'static str> {
        let counts = [("grants", self.grants.get()), ("hand-overs", self.handovers.all())];
        counts.into_iter().find(|(_, count)| *count == 0).map(|(name, _)| name)
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
            "{:.0} s, {} requests, {} grants, {} hand-overs; met: {}, {} shares at once; faults: {}; longest wait for an \
             answer {} ms; {} bytes more are used than before",
            self.started.elapsed().as_secs_f64(),
            self.requests,
            self.grants,
            self.handovers.all(),
            self.met,
            self.most_together,
            self.faults,
            self.longest_wait.load(Ordering::Relaxed),
            self.memory_kept.load(Ordering::Relaxed),
        )
    }
}
