//! A server that ends and starts again. In the recovery period after its start holders keep their locks, no other token
//! is granted one, and the queues are served at its end.

use std::time::{Duration, Instant};

use support::Reply;

use super::Faults;
use crate::durability::Probe;
use crate::end;
use crate::evidence::{ROUNDING, SUSPENDED};
use crate::link::PATIENCE;
use crate::run::Run;
use crate::servers::End;

pub const PERIODS: &str = "recovery periods";
/// The longest time for the first grant after it on a server that does not stall.
const SLACK: Duration = Duration::from_millis(250);
/// After a stall of this length grants are suspended again.
const STALL: Duration = Duration::from_millis(900);

struct Period {
    /// A moment before the start of the server, and one after it.
    started: (Instant, Instant),
    length: Duration,
}

impl Faults<'_> {
    pub(super) fn restart(&mut self) {
        let run = self.run;
        let probe = Probe::take(run, 0, &mut self.random);
        // An end that forgets nothing.
        let (kind, how) = match self.random.u8(..6) {
            _ if !run.settings.appends => ("SHUTDOWN", End::ShutDown("SAVE")),
            0..3 => ("kill -9", End::Killed),
            3 => ("kill -9, torn file", End::Torn),
            4 => ("SHUTDOWN", End::ShutDown("NOSAVE")),
            _ => ("SHUTDOWN", End::ShutDown("")),
        };
        let downtime = if self.random.bool() { Duration::ZERO } else { self.some_ms(0..300) };
        end::count_handovers(run);
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
}

impl Period {
    /// Returns at its end; nothing is checked if connections are closed.
    fn check(&self, run: &Run, probe: Option<&Probe<'_>>) -> Option<()> {
        run.counters.begin(PERIODS);
        let (mut link, mut waiter) = (run.connect(0, false)?, run.connect(0, false)?);
        let name = format!("after{}", run.tokens.fresh());
        let asked = waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 50 BLOCK 15000", run.tokens.fresh())])?;
        // LOCK.INFO shows the end, which is the length after the start. After the end only a period that was too short
        // is wrong.
        let sent = Instant::now();
        let rest = recovery_of(&link.run(&format!("LOCK.INFO {name}")))?;
        let (received, (before, after)) = (Instant::now(), self.started);
        let is_short = received + rest + ROUNDING < before + self.length;
        if is_short || !rest.is_zero() && sent + rest > after + self.length + ROUNDING {
            let text = format!("{rest:?} are left of {:?}, {:?} after the start", self.length, received - before);
            run.fails("a recovery period lasts for lock.recovery-ms from the start", text);
        }
        probe.map(Probe::check_holders);
        // A request for a free lock is granted at the end of the period.
        let reply = waiter.receive(PATIENCE).filter(|reply| *reply != Reply::Closed)?;
        let received = Instant::now();
        if reply == 1 && received + ROUNDING < before + self.length {
            run.fails(SUSPENDED, format!("a free lock was granted {:?} after the start", received - before));
        }
        let stalled = run.evidence.stalls.between(asked, received);
        let late = received.saturating_duration_since((after + self.length).max(asked) + SLACK + stalled);
        if stalled < STALL && (reply != 1 || !late.is_zero()) {
            let text = format!("the reply to the waiter is {reply:?}, {late:?} late, stalls explain {stalled:?}");
            run.fails("the queues are served at the end of a recovery period", text);
        }
        run.counters.count(PERIODS);
        Some(())
    }
}

/// The rest of the recovery period by LOCK.INFO.
pub fn recovery_of(info: &Reply) -> Option<Duration> {
    matches!(info, Reply::List(_)).then_some(())?;
    Some(Duration::from_millis(u64::try_from(info.get("recovery-ms").int()).ok()?))
}
