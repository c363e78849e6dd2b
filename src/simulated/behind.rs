//! Ways to work at a wrong moment, for modules with a planted defect.

use std::cell::Cell;

use super::Module;
use super::context::Context;
use super::world;

thread_local! {
    static JOB: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Does the timer's work in the event that the module is told of.
pub fn work_now<M: Module>() {
    M::timer(&mut Context::new(0, 0));
}

/// Does the timer's work in a job behind the event that the module is told of. Outside the server's scan there is none.
pub fn work_behind_event<M: Module>() {
    if world::with(|world| world.running.scan) {
        JOB.set(Some(work_now::<M>));
    }
}

/// Runs the job behind an event, if there is one.
pub(super) fn run() {
    if let Some(job) = JOB.take() {
        job();
    }
}
