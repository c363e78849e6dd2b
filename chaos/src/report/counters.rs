//! What the run has done so far.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Instant;

use crate::history::locked;

pub struct Counters {
    started: Instant,
    kinds: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub fn since(started: Instant) -> Self {
        Self { started, kinds: Mutex::default() }
    }

    /// Counts a fault that the server has taken, another thing that a run should meet, or a check that was made.
    pub fn count(&self, kind: &'static str) {
        self.add(kind, 1);
    }

    pub fn add(&self, kind: &'static str, more: usize) {
        *locked(&self.kinds).entry(kind).or_default() += more as u64;
    }

    pub fn raise(&self, kind: &'static str, value: i64) {
        let mut kinds = locked(&self.kinds);
        let count = kinds.entry(kind).or_default();
        *count = u64::try_from(value).unwrap_or_default().max(*count);
    }

    pub fn of(&self, kind: &str) -> u64 {
        locked(&self.kinds).get(kind).copied().unwrap_or_default()
    }

    pub fn has(&self, kind: &str) -> bool {
        self.of(kind) > 0
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s", self.started.elapsed().as_secs_f64())?;
        locked(&self.kinds).iter().try_for_each(|(kind, count)| write!(f, ", {kind} {count}"))
    }
}
