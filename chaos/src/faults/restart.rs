//! A server that ends and starts again.

use std::time::{Duration, Instant};

use super::Faults;
use super::recovery::Period;
use crate::durability::Probe;
use crate::end;
use crate::servers::End;

impl Faults<'_> {
    pub(super) fn restart(&mut self) {
        let run = self.run;
        let probe = Probe::take(run, 0, &mut self.random);
        let how = self.choose_end();
        let kind = match how {
            End::Killed => "kill -9",
            End::Torn => "kill -9, torn file",
            End::ShutDown(_) => "SHUTDOWN",
        };
        let downtime = Duration::from_millis(if self.random.bool() { 0 } else { self.random.u64(..300) });
        end::count_handovers(run);
        run.evidence.pauses.end_all();
        run.make_fault(kind, &format!("{how:?}, and a start {downtime:?} later"));
        self.link = None;
        run.server_goes_down();
        let length = Duration::from_millis(run.settings.recovery_ms);
        let mut before = Instant::now();
        let pause = || {
            run.rest(downtime);
            before = Instant::now();
            run.evidence.period_begins(length);
        };
        let (servers, random) = (&mut self.servers, &mut self.random);
        if let Err(what) = run.evidence.stalls.during(|| servers.restart(how, pause, random)) {
            return run.fails("a server that has ended starts again", what);
        }
        let period = Period { started: (before, Instant::now()), length };
        run.server_is_back_at(self.servers.server().port());
        run.fault("the server has started");
        if !length.is_zero() {
            period.check(run, probe.as_ref());
        }
        self.aim_met(probe.is_some_and(|probe| probe.check(0..=0)));
    }

    /// Chooses an end that forgets nothing.
    fn choose_end(&mut self) -> End {
        match self.random.u8(..6) {
            _ if !self.run.settings.appends => End::ShutDown("SAVE"),
            0..3 => End::Killed,
            3 => End::Torn,
            4 => End::ShutDown("NOSAVE"),
            _ => End::ShutDown(""),
        }
    }
}
