//! How far a measurement has come, on standard error and only where somebody looks at it.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `steps` steps, with room for a message. It draws nothing when standard error is no terminal.
pub fn bar(what: &'static str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:14} {wide_bar} {pos}/{len} {elapsed} {msg}").expect("a template");
    let steps = u64::try_from(steps).expect("a number of steps");
    ProgressBar::new(steps).with_style(style).with_prefix(what)
}
