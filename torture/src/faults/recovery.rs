//! The recovery period of a server that has just started: who held a lock holds it, nobody else gets one, and when it is over,
//! whoever waits is served.

use std::time::{Duration, Instant};

use support::Reply;

use crate::deposit::Deposit;
use crate::link::Link;
use crate::settings::{HELD_BACK, PERIODS as CHECK};
use crate::world::World;

/// The server counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// What the first grant after it may take on a server that is held up by nothing.
const SLACK: Duration = Duration::from_millis(250);
/// After a standstill grants are held back once more.
const STANDSTILL: Duration = Duration::from_millis(900);
const LIMIT: Duration = Duration::from_secs(20);

pub struct Period {
    /// A moment before the server started, and one after it.
    pub started: (Instant, Instant),
    pub length: Duration,
}

impl Period {
    /// Returns when it is over; says nothing where connections are closed.
    pub fn check(&self, world: &World, deposit: Option<&Deposit<'_>>) -> Option<()> {
        world.figures.begins(CHECK);
        let (mut link, mut waiter) = (world.connect(0, false)?, world.connect(0, false)?);
        let name = format!("after{}", world.mint.fresh());
        let asked = waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 50 BLOCK 15000", world.mint.fresh())])?;
        self.check_what_remains(world, &name, &mut link)?;
        if let Some(deposit) = deposit {
            deposit.check_holders(world);
        }
        let reply = waiter.receive(LIMIT).filter(|reply| *reply != Reply::Closed)?;
        self.check_grant(world, asked, Instant::now(), &reply);
        world.figures.checked(CHECK);
        Some(())
    }

    /// LOCK.INFO tells the end, which is the length after the start. Once nothing remains, only a period that was too short is wrong.
    fn check_what_remains(&self, world: &World, name: &str, link: &mut Link) -> Option<()> {
        let sent = Instant::now();
        let info = link.run(&format!("LOCK.INFO {name}"));
        let received = Instant::now();
        if !matches!(info, Reply::List(_)) {
            return None;
        }
        let remaining = Duration::from_millis(u64::try_from(info.get("recovery-ms").int()).ok()?);
        let (before, after) = self.started;
        let is_short = received + remaining + ROUNDING < before + self.length;
        let is_long = !remaining.is_zero() && sent + remaining > after + self.length + ROUNDING;
        if is_short || is_long {
            let ages = [received - before, sent.saturating_duration_since(after)];
            let text = format!("{remaining:?} remain of {:?}, at an age between {ages:?}", self.length);
            world.court.charge("a recovery period lasts for lock.recovery-ms from the start", text);
        }
        Some(())
    }

    /// Who asked for a free lock gets it when the period is over.
    fn check_grant(&self, world: &World, asked: Instant, received: Instant, reply: &Reply) {
        let (before, after) = self.started;
        if *reply == 1 && received + ROUNDING < before + self.length {
            let text = format!("a free lock was granted {:?} after the start", received - before);
            return world.court.charge(HELD_BACK, text);
        }
        let due = (after + self.length).max(asked);
        let bad = world.weather.between(asked, received);
        let late = received.saturating_duration_since(due + SLACK + bad);
        if bad < STANDSTILL && (*reply != 1 || !late.is_zero()) {
            let text = format!("who waits is told {reply:?}, {late:?} too late, when faults explain {bad:?}");
            world.court.charge("when a recovery period is over, who waits is served", text);
        }
    }
}
