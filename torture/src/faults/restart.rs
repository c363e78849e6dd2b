//! A server that ends and starts again.

use std::time::{Duration, Instant};

use super::Disturber;
use super::recovery::Period;
use crate::deposit::Deposit;
use crate::ending;
use crate::scene::End;

impl Disturber<'_> {
    /// Ends the server in the middle of everything, and starts it again.
    pub(super) fn start_again(&mut self) {
        let world = self.world;
        let deposit = Deposit::leave(world, 0, &mut self.random);
        let end = self.end();
        let (kind, downtime) = match end {
            End::Killed => ("kill -9", self.downtime()),
            End::Torn => ("kill -9, torn file", self.downtime()),
            End::ShutDown(_) => ("SHUTDOWN", self.downtime()),
        };
        ending::count_handovers(world);
        world.pauses.end();
        world.fault(kind, &format!("{end:?}, and {downtime:?} later it starts again"));
        self.link = None;
        world.server.leaves();
        let length = Duration::from_millis(self.ground.recovery_ms);
        let mut before = Instant::now();
        let pause = || {
            world.rest(downtime);
            before = Instant::now();
            world.settings.period_begins(length);
        };
        let (scene, random) = (&mut self.scene, &mut self.random);
        if let Err(what) = world.weather.is_bad_during(|| scene.start_again(end, pause, random)) {
            return world.court.charge("a server that has ended starts again", what);
        }
        let period = Period { started: (before, Instant::now()), length };
        world.server.is_back_at(self.scene.server().port());
        world.note_fault("it is back");
        if !length.is_zero() {
            period.check(world, deposit.as_ref());
        }
        if let Some(deposit) = deposit {
            self.found(deposit.check(world, 0..=0));
        }
    }

    /// A way to end that forgets nothing.
    fn end(&mut self) -> End {
        if !self.ground.appends {
            return End::ShutDown("SAVE");
        }
        match self.random.u8(..6) {
            0..3 => End::Killed,
            3 => End::Torn,
            4 => End::ShutDown("NOSAVE"),
            _ => End::ShutDown(""),
        }
    }

    fn downtime(&mut self) -> Duration {
        Duration::from_millis(if self.random.bool() { 0 } else { self.random.u64(..300) })
    }
}
