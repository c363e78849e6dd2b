//! The result of a run: the first failure, counters, and the goals that are still missing.

mod counters;
mod goals;

use std::sync::OnceLock;

pub use counters::Counters;
pub use goals::missing;

/// A promise of the module, in words.
pub type Rule = &'static str;

pub type Finding = Option<(Rule, String)>;

/// The failures of a run. The first one ends it.
#[derive(Default)]
pub struct Failures(OnceLock<String>);

impl Failures {
    /// Reports a failure and ends the run. Later failures can be consequences of the first, and are dropped.
    pub fn report(&self, rule: Rule, what: impl AsRef<str>) {
        let _ = self.0.set(format!("rule: {rule}\n{}", what.as_ref()));
    }

    pub fn first(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
