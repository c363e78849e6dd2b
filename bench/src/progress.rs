//! How far a measurement has come, on standard error and only where somebody looks at it.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar of `steps` steps for a section, with room for a message; it is gone when it is dropped. It draws nothing when
/// standard error is no terminal.
pub fn bar(section: &'static str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:14} {wide_bar} {pos}/{len} {elapsed} {msg}").expect("a template");
    let steps = u64::try_from(steps).expect("a number of steps");
    ProgressBar::new(steps).with_style(style).with_prefix(section).with_finish(ProgressFinish::AndClear)
}

/// What `measure` finds of each, a step of the bar for each.
pub fn each<T, Found>(section: &'static str, all: &[T], measure: impl Fn(&T) -> Found) -> Vec<Found> {
    let progress = bar(section, all.len());
    let step = |one| {
        let found = measure(one);
        progress.inc(1);
        found
    };
    all.iter().map(step).collect()
}
