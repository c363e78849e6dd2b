//! Slots of a cluster that move from one master to the other.

use std::time::{Duration, Instant};

use support::Reply;

use super::Faults;
use crate::durability::Probe;
use crate::evidence::since_now;
use crate::keys::DATABASES;
use crate::link::Link;
use crate::run::Run;
use crate::servers::moves_slots;

const CHECK: &str = "waiters of a lock that moves";
/// Servers check once a second whether the slots of their waiters are still theirs.
const CHECKED: Duration = Duration::from_millis(1300);
const LIMIT: Duration = Duration::from_secs(10);
/// Above all that a busy machine explains.
const GIVE_UP: Duration = Duration::from_secs(60);

impl Faults<'_> {
    pub(super) fn move_slot(&mut self) {
        let run = self.run;
        let database = self.random.u32(..DATABASES);
        let Some(cluster) = &mut self.servers.cluster else { return };
        let whole = moves_slots(&cluster.nodes[0]) && self.random.bool();
        let kind = if whole { "slots moved as a whole" } else { "slots moved key by key" };
        run.make_fault(kind, &format!("the slot of database {database} begins to move: {kind}"));
        let probe = Probe::take(run, database, &mut self.random);
        let (asked, waiter) = (Instant::now(), start_waiter(run, database));
        run.evidence.changes.mark(());
        let (number, begun) = (database as usize, Instant::now());
        if let Err(what) = run.evidence.stalls.during(|| cluster.move_slot(number, whole)) {
            return run.fails("slots move", what);
        }
        run.moves(database, cluster.port_of(number));
        run.fault("the slot has moved");
        run.evidence.stalls.add_from_now(CHECKED);
        if let Some(waiter) = waiter {
            check_waiter(run, waiter, asked);
        }
        // A key that is sent by MIGRATE gains the time that the move takes.
        let gained = if whole { 0 } else { i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX) };
        self.aim_met(probe.is_some_and(|probe| probe.check(0..=gained)));
    }
}

fn start_waiter(run: &Run, database: u32) -> Option<Link> {
    let (mut holder, mut link) = (run.connect(database, false)?, run.connect(database, false)?);
    let name = format!("w{}{}", run.tokens.fresh(), run.suffix(database));
    (holder.run(&format!("LOCK.ACQUIRE {name} {} PX 60000", run.tokens.fresh())) == 1).then_some(())?;
    link.send(&[format!("LOCK.ACQUIRE {name} {} PX 60000 BLOCK 0", run.tokens.fresh())])?;
    Some(link)
}

fn check_waiter(run: &Run, mut waiter: Link, asked: Instant) {
    let moved = since_now();
    let reply = waiter.receive(GIVE_UP);
    let late = run.evidence.stalls.late(moved, LIMIT);
    let is_right = match &reply {
        Some(Reply::Error(line)) => line.starts_with("MOVED"),
        reply => *reply == Some(Reply::Closed),
    };
    if (!is_right || late.is_some()) && !run.evidence.flushes.any_since(asked) {
        let text = format!("the reply to connection {} is {reply:?}, {late:?}", waiter.id());
        run.fails("the waiters of a lock whose slot moves are notified", text);
    }
    if reply != Some(Reply::Closed) {
        run.counters.count(CHECK);
    }
}
