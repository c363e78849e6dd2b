//! The outcome of a hunt.

use std::fmt;
use std::time::Duration;

/// The number of histories in one of which a defect must be found. It takes about a minute, and does not depend on the speed of
/// the machine.
pub const MAX_HISTORIES: u64 = 8000;

/// The longest part of a message that is shown.
const SHOWN: usize = 110;

/// The outcome of the hunt for one defect.
pub struct Outcome {
    pub name: String,
    pub time: Duration,
    /// The history that has found it and the message of the checker, or why it was not found.
    pub result: Result<Found, String>,
}

/// How a defect was found.
pub struct Found {
    /// The seed of the history, or the name of the input.
    pub history: String,
    /// The message of the checker.
    pub why: String,
}

impl Outcome {
    /// Returns the name of the defect.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it was found.
    pub fn is_found(&self) -> bool {
        self.result.is_ok()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = |why: &str| why.chars().take(SHOWN).collect::<String>();
        let result = match &self.result {
            Ok(Found { history, why }) => format!("{history}: {}", start(why)),
            Err(why) => format!("NOT FOUND: {why}"),
        };
        write!(f, "{:<44} {:>6.2} s  {result}", self.name, self.time.as_secs_f64())
    }
}
