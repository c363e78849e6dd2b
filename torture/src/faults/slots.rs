//! Slots of a cluster that move from one master to the other.

use std::time::{Duration, Instant};

use support::{Reply, Server};

use super::Disturber;
use crate::cluster::{self, Move};
use crate::deposit::Deposit;
use crate::keys::DATABASES;
use crate::link::Link;
use crate::world::World;

const TOLD: &str = "who waits for a lock whose slot moves is told";
const TOLD_CHECK: &str = "those who wait for a lock that moves";
const ONCE: &str = "a lock whose slot moves has one holder";
/// Servers look once a second whether the slots of those who wait are still theirs.
const LOOKS: Duration = Duration::from_millis(1300);
const LIMIT: Duration = Duration::from_secs(10);
/// Above all that a busy machine explains.
const GIVE_UP: Duration = Duration::from_secs(60);

impl Disturber<'_> {
    /// Moves a slot in one of the ways that the server knows.
    pub(super) fn move_slot(&mut self) {
        let world = self.world;
        let database = self.random.u32(..DATABASES);
        let atomically =
            self.scene.cluster().is_some_and(|cluster| cluster::moves_slots(&cluster.nodes()[0])) && self.random.bool();
        let kind = if atomically { "slots moved as a whole" } else { "slots moved key by key" };
        world.fault(kind, &format!("the slot of database {database} begins to move: {kind}"));
        let deposit = Deposit::leave(world, database, &mut self.random);
        let waiter = Waiter::begin(world, database);
        world.server.begins_anew();
        let asker = Asker { world, name: format!("a{}{}", world.mint.fresh(), world.suffix(database)) };
        let Some(cluster) = self.scene.cluster_mut() else { return };
        let (number, begun) = (database as usize, Instant::now());
        let moved = world.weather.is_bad_during(|| cluster.move_realm(number, atomically, |step| asker.ask(step)));
        if let Err(what) = moved {
            return world.court.charge("slots move", what);
        }
        world.server.moves(database, cluster.port_of(number));
        world.note_fault("the slot has moved");
        let now = Instant::now();
        world.weather.was_bad(now, now + LOOKS);
        if let Some(waiter) = waiter {
            waiter.check(world);
        }
        if let Some(deposit) = deposit {
            // A key that is sent by MIGRATE gains the time that it is under way.
            let gained = if atomically { 0 } else { i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX) };
            self.found(deposit.check(world, 0..=gained));
        }
    }
}

/// Somebody who waits for a lock that is held all the time.
struct Waiter {
    link: Link,
    begun: Instant,
}

impl Waiter {
    fn begin(world: &World, database: u32) -> Option<Self> {
        world.figures.begins(TOLD_CHECK);
        let begun = Instant::now();
        let (mut holder, mut waiter) = (world.connect(database, false)?, world.connect(database, false)?);
        let name = format!("w{}{}", world.mint.fresh(), world.suffix(database));
        (holder.run(&format!("LOCK.ACQUIRE {name} {} PX 60000", world.mint.fresh())) == 1).then_some(())?;
        waiter.send(&[format!("LOCK.ACQUIRE {name} {} PX 60000 BLOCK 0", world.mint.fresh())])?;
        Some(Self { link: waiter, begun })
    }

    fn check(mut self, world: &World) {
        let asked = Instant::now();
        let reply = self.link.receive(GIVE_UP);
        let late = asked.elapsed().saturating_sub(LIMIT + world.weather.between(asked, Instant::now()));
        let is_told = match &reply {
            Some(Reply::Error(line)) => line.starts_with("MOVED"),
            reply => *reply == Some(Reply::Closed),
        };
        if (!is_told || !late.is_zero()) && !world.flushes.any_since(self.begun) {
            let (id, port) = (self.link.id(), self.link.port());
            let seen = Link::open(port, 0, false).map(|mut link| link.run(&format!("CLIENT LIST ID {id}")));
            world.court.charge(TOLD, format!("it was told {reply:?}, {late:?} too late; the server shows {seen:?}"));
        }
        if reply != Some(Reply::Closed) {
            world.figures.checked(TOLD_CHECK);
        }
    }
}

/// Asks for a new lock while its slot is between two servers.
struct Asker<'w> {
    world: &'w World,
    name: String,
}

impl Asker<'_> {
    /// The old server sends on who asks for a lock that it does not have; the new one grants it to who was sent on.
    fn ask(&self, step: &Move<'_>) {
        let begun = Instant::now();
        let (first, second) = (self.world.mint.fresh(), self.world.mint.fresh());
        let line = |token| format!("LOCK.ACQUIRE {} {token} PX 60000", self.name);
        let answers = [
            (step.from, line(first), false, "ASK"),
            (step.to, line(first), false, "MOVED"),
            (step.to, line(first), true, "1"),
            (step.from, line(second), false, "ASK"),
            (step.to, line(second), true, "nil"),
        ];
        for (server, line, asking, expected) in answers {
            let Some(reply) = answer(server, &line, asking) else { return };
            let is_right = reply.to_string().trim_start_matches('-').starts_with(expected);
            if !is_right && !self.world.flushes.any_since(begun) {
                let text = format!("{line} (asking: {asking}) is answered {reply:?}, not {expected}");
                return self.world.court.charge(ONCE, text);
            }
        }
    }
}

/// What a server answers; None when it closes the connection.
fn answer(server: &Server, line: &str, asking: bool) -> Option<Reply> {
    let mut link = Link::open(server.port(), 0, false)?;
    if asking {
        link.run("ASKING");
    }
    let reply = link.run(line);
    (reply != Reply::Closed).then_some(reply)
}
