//! A server that ends and starts again. In the recovery period after its start holders keep their locks, no other token
//! is granted one, and the queues are served at its end.

use std::time::{Duration, Instant};

use support::Reply;

use super::Faults;
use crate::durability::Probe;
use crate::evidence::{ROUNDING, since_now};
use crate::link::PATIENCE;
use crate::run::Run;
use crate::servers::End;

pub const PERIODS: &str = "recovery periods";
/// The longest time for the first grant after it on a server that does not stall.
const SLACK: Duration = Duration::from_millis(250);
/// After a stall of this length grants are suspended again.
const STALL: Duration = Duration::from_millis(900);

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
        run.make_fault(kind, &format!("{how:?}, and a start {downtime:?} later"));
        self.link = None;
        run.evidence.changes.begin(());
        let length = Duration::from_millis(run.settings.recovery_ms);
        let mut before = Instant::now();
        let pause = || {
            run.rest(downtime);
            before = Instant::now();
            run.evidence.suspends(length, before, before);
        };
        let (servers, random) = (&mut self.servers, &mut self.random);
        if let Err(what) = run.evidence.stalls.during(|| servers.restart(how, pause, random)) {
            return run.fails("a server that has ended starts again", what);
        }
        let after = Instant::now();
        run.server_is_back_at(self.servers.server().port());
        run.fault("the server has started");
        if !length.is_zero() {
            check_period(run, before, after, length);
        }
        self.aim_met(probe.is_some_and(|probe| probe.check(0..=0)));
    }
}

/// Checks a recovery period of a server that was started between these two moments, and returns at its end; nothing is
/// checked if connections are closed.
fn check_period(run: &Run, before: Instant, after: Instant, length: Duration) -> Option<()> {
    let (mut link, mut waiter) = (run.connect(0, false)?, run.connect(0, false)?);
    let name = format!("after{}", run.tokens.fresh());
    let asked = since_now();
    waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 50 BLOCK 15000", run.tokens.fresh())])?;
    // LOCK.INFO shows the end. After it only a period that was too short is wrong.
    let sent = Instant::now();
    let rest = recovery_of(&link.run(&format!("LOCK.INFO {name}")))?;
    let is_short = Instant::now() + rest + ROUNDING < before + length;
    if is_short || !rest.is_zero() && sent + rest > after + length + ROUNDING {
        let text = format!("{rest:?} are left of {length:?}, {:?} after the start", before.elapsed());
        run.fails("a recovery period lasts for lock.recovery-ms from the start", text);
    }
    let reply = waiter.receive(PATIENCE).filter(|reply| *reply != Reply::Closed)?;
    let due = (after + length).saturating_duration_since(asked.0);
    let late = run.evidence.stalls.late(asked, due + SLACK);
    if run.evidence.stalls.between(asked.0, Instant::now()) < STALL && (reply != 1 || late.is_some()) {
        let text = format!("the reply to the waiter is {reply:?}, {late:?}");
        run.fails("the queues are served at the end of a recovery period", text);
    }
    run.counters.count(PERIODS);
    Some(())
}

pub fn recovery_of(info: &Reply) -> Option<Duration> {
    matches!(info, Reply::List(_)).then_some(())?;
    Some(Duration::from_millis(u64::try_from(info.get("recovery-ms").int()).ok()?))
}
