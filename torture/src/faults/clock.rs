//! A wall clock that is set while everybody works.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::Disturber;
use crate::deposit::Deposit;

/// How far it is set forward, for good.
const FORWARD_MS: Range<i64> = 1..20_000;
/// How far it is set back for a moment, in which waits and leases do not come to their ends.
const BACK_MS: Range<i64> = 1..60_000;
/// How far it is set back for good. Whoever waits then waits for so much longer.
const BACK_FOR_GOOD_MS: Range<i64> = 1..1000;
/// Above what the module takes for a sign that it has not run.
const LOOKS_LIKE_A_STALL: Duration = Duration::from_secs(1);

impl Disturber<'_> {
    /// Sets the clock in one way or another.
    pub(super) fn set_clock(&mut self) {
        let world = self.world;
        let deposit = Deposit::leave(world, 0, &mut self.random);
        let begun = Instant::now();
        let steps = match self.random.u8(..4) {
            0 => vec![-self.random.i64(BACK_FOR_GOOD_MS)],
            1 => {
                let ms = self.random.i64(BACK_MS);
                vec![-ms, ms]
            }
            _ => vec![self.random.i64(FORWARD_MS)],
        };
        // A pause ends by that clock, too.
        world.pauses.end();
        world.fault("steps of the clock", &format!("the clock is set by {steps:?} ms"));
        world.weather.is_bad_during(|| {
            for step in &steps {
                self.step(*step);
                let span = Duration::from_millis(self.random.u64(..100));
                world.rest(span);
            }
        });
        // What a step forward looks like: that the server has not run for so long. A step back puts off what is due.
        let forward: i64 = steps.iter().sum();
        let back = Duration::from_millis(forward.min(0).unsigned_abs());
        world.weather.was_bad(begun, Instant::now() + back + LOOKS_LIKE_A_STALL);
        if let Some(deposit) = deposit {
            self.found(deposit.check(world, -forward..=-forward));
        }
    }

    fn step(&mut self, ms: i64) {
        let Some(clock) = self.scene.clock_mut() else { return };
        // The rest of a fault must be undone, whatever happens to connections.
        clock.set(ms);
        while !self.world.court.is_over() {
            let Some(mut link) = self.world.connect(0, false) else { return };
            if self.scene.clock_mut().is_some_and(|clock| clock.is_seen_by(&mut link)) {
                return;
            }
        }
    }
}
