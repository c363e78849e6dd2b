//! What was found to be wrong. The first finding ends the run.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A promise, in words.
pub type Rule = &'static str;

/// A promise that was broken.
#[derive(Debug)]
pub struct Violation {
    pub rule: Rule,
    /// What happened, and the history of the lock around it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule: {}\n{}", self.rule, self.what)
    }
}

#[derive(Default)]
pub struct Court {
    first: OnceLock<Violation>,
    over: AtomicBool,
}

impl Court {
    /// Reports a finding and ends the run. Later ones may be consequences of the first, and are dropped.
    pub fn charge(&self, rule: Rule, what: String) {
        let _ = self.first.set(Violation { rule, what });
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn verdict(&self) -> Option<&Violation> {
        self.first.get()
    }
}
