//! What the run has done so far.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use crate::history::locked;

pub struct Counters {
    started: Instant,
    kinds: Mutex<BTreeMap<&'static str, Count>>,
    /// Grants after waiting, as each server counted them last, by the run_id of the server.
    handovers: Mutex<BTreeMap<String, u64>>,
}

/// How often something happened. Checks that a fault can make void also count how often they began.
#[derive(Clone, Copy, Default)]
struct Count {
    begun: u64,
    done: u64,
}

impl Counters {
    pub fn since(started: Instant) -> Self {
        Self { started, kinds: Mutex::default(), handovers: Mutex::default() }
    }

    /// Counts a fault that the server has taken, another thing that a run should meet, or a check that was made.
    pub fn count(&self, kind: &'static str) {
        self.add(kind, 1);
    }

    pub fn add(&self, kind: &'static str, more: usize) {
        locked(&self.kinds).entry(kind).or_default().done += more as u64;
    }

    /// Sets the greatest value so far.
    pub fn raise(&self, kind: &'static str, value: impl TryInto<u64>) {
        let mut kinds = locked(&self.kinds);
        let count = kinds.entry(kind).or_default();
        count.done = count.done.max(value.try_into().unwrap_or_default());
    }

    /// Counts the beginning of a check; [`Counters::count`] follows if the check comes to its end.
    pub fn begin(&self, check: &'static str) {
        locked(&self.kinds).entry(check).or_default().begun += 1;
    }

    pub fn handovers_of(&self, server: String, count: u64) {
        locked(&self.handovers).insert(server, count);
    }

    pub fn of(&self, kind: &str) -> u64 {
        locked(&self.kinds).get(kind).map_or(0, |count| count.done)
    }

    pub fn has(&self, kind: &str) -> bool {
        self.of(kind) > 0
    }

    /// Whether fewer than one of `one_of` checks that began came to their end.
    pub fn mostly_void(&self, check: &str, one_of: u64) -> bool {
        locked(&self.kinds).get(check).is_some_and(|count| count.done * one_of < count.begun)
    }

    /// What every run must have, and this one has not.
    pub fn missing(&self) -> Vec<&'static str> {
        let counts = [("grants", self.of("grants")), ("hand-overs", self.all_handovers())];
        counts.into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }

    fn all_handovers(&self) -> u64 {
        locked(&self.handovers).values().sum()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s, hand-overs {}", self.started.elapsed().as_secs_f64(), self.all_handovers())?;
        for (kind, Count { begun, done }) in locked(&self.kinds).iter() {
            write!(f, ", {kind} {done}")?;
            if *begun > 0 {
                write!(f, " ({} void)", begun.saturating_sub(*done))?;
            }
        }
        Ok(())
    }
}
