//! Reads the history of a run and divides it by locks, and by windows of time in which the state of a lock is known.

mod faults;
mod line;
mod lock;
mod window;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use faults::Faults;
use line::Line;
pub use lock::{Draw, LockHistory, Timed};
pub use window::{Window, windows};

/// Reads the histories of all locks that LOCK commands alone have changed.
///
/// # Errors
///
/// The file cannot be read, or a line is no line of a history.
pub fn read(path: &Path) -> Result<Vec<LockHistory>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text)
}

/// The same for a text.
pub fn parse(text: &str) -> Result<Vec<LockHistory>, String> {
    let numbered = text.lines().enumerate();
    let parsed =
        numbered.map(|(at, line)| serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1)));
    let lines: Vec<Line> = parsed.collect::<Result<_, _>>()?;
    let faults = Faults::of(&lines);
    let mut by_lock: BTreeMap<_, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for line in &lines {
        match line {
            Line::Operation(operation) if !operation.external => {
                by_lock.entry(operation.name()).or_default().0.push(operation);
            }
            Line::Message(message) if message.message == "granted" => {
                by_lock.entry((message.round, message.database, message.lock.clone())).or_default().1.push(message);
            }
            _ => {}
        }
    }
    Ok(by_lock
        .into_iter()
        .filter(|(_, (operations, _))| !operations.is_empty())
        .map(|(name, (operations, messages))| LockHistory::new(&name, &operations, &messages, &faults))
        .collect())
}
