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
    faults: Mutex<BTreeMap<&'static str, u64>>,
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

impl Figures {
    pub fn since(started: Instant) -> Self {
        Self {
            started,
            requests: Count::default(),
            grants: Count::default(),
            handovers: Count::default(),
            faults: Mutex::default(),
            longest_wait: AtomicU64::new(0),
        }
    }

    pub fn fault(&self, kind: &'static str) {
        *self.faults.lock().expect("no panic").entry(kind).or_default() += 1;
    }

    /// A client has waited for so long for an answer.
    pub fn waited(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.longest_wait.fetch_max(ms, Ordering::Relaxed);
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.lock().expect("no panic");
        let faults: Vec<String> = faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
        write!(
            f,
            "{:.0} s, {} requests, {} grants, {} hand-overs; faults: {faults}; longest wait for an answer {} ms",
            self.started.elapsed().as_secs_f64(),
            self.requests,
            self.grants,
            self.handovers,
            self.longest_wait.load(Ordering::Relaxed),
        )
    }
}
