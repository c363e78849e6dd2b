//! One lock's long queue must not delay another lock.
//!
//! An iteration of a simulated event loop takes no time, so delays are counted in iterations.

use super::LockModel;
use crate::checker::spec::Ms;
use crate::checker::{Conditions, Verdict};

/// The greatest number of iterations in which a lock could be granted, or a request is due a reply, and is not. In each
/// of them one of the other locks may have a batch of grants.
const MAX_ITERATIONS: u32 = 8;

/// For how many iterations of the event loop work on a lock has been due.
#[derive(Clone, Copy, Default)]
pub struct Delays {
    grant: u32,
    time_out: u32,
}

impl LockModel {
    /// Counts an iteration of the event loop.
    ///
    /// # Errors
    ///
    /// If a waiter could be granted the lock, or should have timed out, for too many iterations.
    pub(in crate::checker) fn count_iteration(&mut self, conditions: &Conditions, is_here: bool) -> Verdict {
        let now = conditions.now;
        let may_grant = is_here && conditions.is_settled() && conditions.granting_since.is_some();
        let is_free = self.free_since(now).is_some() && self.first(now).is_some();
        let is_due = may_grant && (is_free || self.capacity_since(now).is_some());
        let is_over = |deadline: Ms| deadline + 1 < now;
        let times_out = self.requests().filter_map(|request| request.deadline).any(is_over) && conditions.is_steady();
        let count = |before: u32, is_due: bool| if is_due { before + 1 } else { 0 };
        self.delays =
            Delays { grant: count(self.delays.grant, is_due), time_out: count(self.delays.time_out, times_out) };
        if self.delays.grant > MAX_ITERATIONS {
            return Err(format!("its first waiter is passed over for {MAX_ITERATIONS} iterations, and waits for it"));
        }
        if self.delays.time_out > MAX_ITERATIONS {
            return Err(format!("the time of a request is up for {MAX_ITERATIONS} iterations"));
        }
        Ok(())
    }

    /// The lock has changed, so its first waiter has not been passed over.
    pub(in crate::checker) fn end_delay(&mut self) {
        self.delays.grant = 0;
    }
}
