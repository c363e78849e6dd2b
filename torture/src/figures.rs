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
    checks: Checks,
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
        write_list(f, counts.iter().map(|(kind, count)| format!("{kind} {count}")))
    }
}

/// How often each check was begun that can come to nothing, because something gets in its way, and how often it was made.
#[derive(Default)]
struct Checks(Mutex<BTreeMap<&'static str, Check>>);

#[derive(Clone, Copy, Default)]
struct Check {
    begun: u64,
    made: u64,
}

impl Checks {
    fn change(&self, kind: &'static str, change: impl FnOnce(&mut Check)) {
        change(self.0.lock().expect("no panic").entry(kind).or_default());
    }

    fn of(&self, kind: &str) -> Check {
        self.0.lock().expect("no panic").get(kind).copied().unwrap_or_default()
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.lock().expect("no panic");
        let line = |(kind, Check { begun, made }): (&&str, &Check)| {
            format!("{kind} {made} and {} skipped", begun.saturating_sub(*made))
        };
        write_list(f, checks.iter().map(line))
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, parts: impl Iterator<Item = String>) -> fmt::Result {
    let text = parts.collect::<Vec<_>>().join(", ");
    f.write_str(if text.is_empty() { "none" } else { &text })
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
            checks: Checks::default(),
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

    /// A check begins that can come to nothing; [`Figures::checked`] follows if it does not.
    pub fn begins(&self, check: &'static str) {
        self.checks.change(check, |check| check.begun += 1);
    }

    /// Such a check was made.
    pub fn checked(&self, check: &'static str) {
        self.checks.change(check, |check| check.made += 1);
    }

    /// Whether a fault, a thing or a check of this name was met, or made.
    pub fn has_met(&self, kind: &str) -> bool {
        self.met.has(kind) || self.faults.has(kind) || self.checks.of(kind).made > 0
    }

    /// Whether fewer than one of so many checks that were begun was made.
    pub fn skips_most(&self, check: &str, one_of: u64) -> bool {
        let Check { begun, made } = self.checks.of(check);
        made * one_of < begun
    }

    /// What every run must have, and this one has not.
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = [("grants", self.grants.get()), ("hand-overs", self.handovers.all())];
        counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
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
            "{:.0} s, {} requests, {} grants, {} hand-overs; met: {}, {} shares at once; checks: {}; faults: {}; \
             longest wait for an answer {} ms; {} bytes more are used than before",
            self.started.elapsed().as_secs_f64(),
            self.requests,
            self.grants,
            self.handovers.all(),
            self.met,
            self.most_together,
            self.checks,
            self.faults,
            self.longest_wait.load(Ordering::Relaxed),
            self.memory_kept.load(Ordering::Relaxed),
        )
    }
}
