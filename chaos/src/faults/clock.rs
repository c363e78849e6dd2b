//! A wall clock that is set under load.

use std::time::{Duration, Instant};

use super::Faults;
use crate::durability::Probe;

/// Above what the module takes for a stall.
const LOOKS_LIKE_A_STALL: Duration = Duration::from_secs(1);

impl Faults<'_> {
    pub(super) fn set_clock(&mut self) {
        let run = self.run;
        let probe = Probe::take(run, 0, &mut self.random);
        let begun = Instant::now();
        let steps = match self.random.u8(..4) {
            // Each wait then lasts so much longer.
            0 => vec![-self.random.i64(1..1000)],
            // For a moment, in which waits and leases do not end.
            1 => {
                let ms = self.random.i64(1..60_000);
                vec![-ms, ms]
            }
            _ => vec![self.random.i64(1..20_000)],
        };
        run.make_fault("steps of the clock", &format!("the clock is set by {steps:?} ms"));
        run.evidence.stalls.during(|| {
            for step in &steps {
                self.step(*step);
                run.rest(self.some_ms(0..100));
            }
        });
        run.history.fault("the clock has been set");
        // A step forward looks like a stall of that length; a step back delays all timers.
        let forward: i64 = steps.iter().sum();
        let back = Duration::from_millis(forward.min(0).unsigned_abs());
        run.evidence.stalls.add(begun, Instant::now() + back + LOOKS_LIKE_A_STALL);
        self.aim_met(probe.is_some_and(|probe| probe.check(-forward..=-forward)));
    }

    fn step(&mut self, ms: i64) {
        let Some(clock) = &mut self.servers.clock else { return };
        clock.set(ms);
        // The rest of a fault must be undone, also if connections are closed.
        while !self.run.is_over() && self.run.connect(0, false).is_some_and(|mut link| !clock.is_seen_by(&mut link)) {}
    }
}
