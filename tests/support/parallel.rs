//! Checks that mostly wait, made at the same time.

use std::thread;

/// Runs `check` for every case, each on a thread of its own; panics if one does.
#[track_caller]
pub fn for_each<T: Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}
