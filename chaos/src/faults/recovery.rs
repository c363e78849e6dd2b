//! The recovery period of a server that has just started: holders keep their locks, no other token is granted one, and
//! the queues are served at its end.

use std::time::{Duration, Instant};

use support::Reply;

use crate::durability::Probe;
use crate::evidence::{ROUNDING, SUSPENDED};
use crate::link::{Link, PATIENCE};
use crate::run::Run;

/// The name of its counter.
pub const CHECK: &str = "recovery periods";
/// The longest time for the first grant after it on a server that does not stall.
const SLACK: Duration = Duration::from_millis(250);
/// After a stall of this length grants are suspended again.
const STALL: Duration = Duration::from_millis(900);

pub struct Period {
    /// A moment before the start of the server, and one after it.
    pub started: (Instant, Instant),
    pub length: Duration,
}

impl Period {
    /// Returns at its end; nothing is checked if connections are closed.
    pub fn check(&self, run: &Run, probe: Option<&Probe<'_>>) -> Option<()> {
        run.counters.begin(CHECK);
        let (mut link, mut waiter) = (run.connect(0, false)?, run.connect(0, false)?);
        let name = format!("after{}", run.tokens.fresh());
        let asked = waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 50 BLOCK 15000", run.tokens.fresh())])?;
        self.check_length(run, &name, &mut link)?;
        probe.map(Probe::check_holders);
        let reply = waiter.receive(PATIENCE).filter(|reply| *reply != Reply::Closed)?;
        self.check_grant(run, asked, Instant::now(), &reply);
        run.counters.count(CHECK);
        Some(())
    }

    /// LOCK.INFO shows the end, which is the length after the start. After the end only a period that was too short is
    /// wrong.
    fn check_length(&self, run: &Run, name: &str, link: &mut Link) -> Option<()> {
        let sent = Instant::now();
        let info = link.run(&format!("LOCK.INFO {name}"));
        let received = Instant::now();
        let rest = recovery_of(&info)?;
        let (before, after) = self.started;
        let is_short = received + rest + ROUNDING < before + self.length;
        let is_long = !rest.is_zero() && sent + rest > after + self.length + ROUNDING;
        if is_short || is_long {
            let ages = [received - before, sent.saturating_duration_since(after)];
            let text = format!("{rest:?} are left of {:?}, at an age between {ages:?}", self.length);
            run.fails("a recovery period lasts for lock.recovery-ms from the start", text);
        }
        Some(())
    }

    /// A request for a free lock is granted at the end of the period.
    fn check_grant(&self, run: &Run, asked: Instant, received: Instant, reply: &Reply) {
        let (before, after) = self.started;
        if *reply == 1 && received + ROUNDING < before + self.length {
            return run.fails(SUSPENDED, format!("a free lock was granted {:?} after the start", received - before));
        }
        let due = (after + self.length).max(asked);
        let stalled = run.evidence.stalls.between(asked, received);
        let late = received.saturating_duration_since(due + SLACK + stalled);
        if stalled < STALL && (*reply != 1 || !late.is_zero()) {
            let text = format!("the reply to the waiter is {reply:?}, {late:?} late, stalls explain {stalled:?}");
            run.fails("the queues are served at the end of a recovery period", text);
        }
    }
}

/// The rest of the recovery period by LOCK.INFO.
pub fn recovery_of(info: &Reply) -> Option<Duration> {
    matches!(info, Reply::List(_)).then_some(())?;
    Some(Duration::from_millis(u64::try_from(info.get("recovery-ms").int()).ok()?))
}
