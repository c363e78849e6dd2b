//! The tests that need the machine for themselves: they measure, or need most of the connections that a process may have.

mod batches;
mod scale;
mod timing;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time, also where they are run on several threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
