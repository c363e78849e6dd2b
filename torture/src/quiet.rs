//! Locks that nobody else touches: what makes room for the next in line comes from elsewhere, and no request of others makes the
//! module look. So it has to notice by itself.

use std::time::{Duration, Instant};

use support::Reply;

use crate::court::Rule;
use crate::ground::Kind;
use crate::link::Link;
use crate::pulse::starved;
use crate::world::World;

const NOTICED: Rule = "room in a lock is noticed at once, whatever has made it";
/// What the answer may take on a server that is held up by nothing.
const SLACK: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(20);
/// Longer than anybody waits here.
const LEASE_MS: u64 = 3000;
const BLOCK_MS: u64 = 2500;

/// Those who meet at one lock.
struct Stage {
    key: String,
    channel: String,
    holder: Link,
    /// Who leaves the line, or cannot be told.
    other: Link,
    next: Link,
}

/// Plays scenes until the run is over.
pub fn run(world: &World, mut random: fastrand::Rng) {
    let mut links: Option<[Link; 3]> = None;
    for number in 0_u32.. {
        world.rest(Duration::from_millis(random.u64(20..300)));
        if !world.goes_on() {
            return;
        }
        let scene = [Stage::share_is_removed, Stage::writer_leaves, Stage::nobody_listens][random.usize(..3)];
        links = links
            .filter(|links| links.iter().all(|link| world.is_served_by(link)))
            .or_else(|| Some([connect(world)?, connect(world)?, connect(world)?]));
        let Some([holder, other, next]) = links.take() else { continue };
        let stage = Stage { key: format!("q{number}"), channel: format!("quiet{number}"), holder, other, next };
        links = stage.play(world, &mut random, scene);
    }
}

fn connect(world: &World) -> Option<Link> {
    world.connect(0, false)
}

/// Has somebody wait, and makes room for him. None when a connection was closed, or the settings are in the way.
type Scene = fn(&mut Stage, &World, &mut fastrand::Rng) -> Option<Room>;

/// Room was made.
struct Room {
    by: String,
    at: Instant,
}

impl Stage {
    /// The connections, if they are still good.
    fn play(mut self, world: &World, random: &mut fastrand::Rng, scene: Scene) -> Option<[Link; 3]> {
        let (begun, beginnings) = (Instant::now(), world.server.beginnings());
        if world.settings.cut(Some(LEASE_MS), begun, begun) != Some(LEASE_MS) {
            return Some([self.holder, self.other, self.next]);
        }
        world.figures.begins(Kind::Plain.aim());
        let room = scene(&mut self, world, random)?;
        let starved_before = starved();
        let reply = self.next.receive(LIMIT)?;
        let received = Instant::now();
        let is_disturbed = world.flushes.any_since(begun) || world.settings.may_hold_back(begun, received);
        let begins_anew = world.server.has_begun_since(beginnings);
        if reply == Reply::Closed || world.is_refusal(&reply) || is_disturbed || begins_anew {
            return None;
        }
        world.figures.checked(Kind::Plain.aim());
        let took = received - room.at;
        let own = starved().saturating_sub(starved_before);
        let bad = world.weather.between(room.at, received) + own;
        // Its BLOCK may be over when the server goes on.
        let is_explained = reply == 1 || (reply == Reply::Nil && took > SLACK);
        if !is_explained || took > SLACK + bad {
            let text = format!(
                "{}, {}: the next was told {reply:?} after {took:?}, of which faults explain {bad:?}",
                self.key, room.by
            );
            world.court.charge(NOTICED, text);
        }
        self.holder.run(&format!("DEL {}", self.key));
        Some([self.holder, self.other, self.next])
    }

    /// Another client takes one of two shares away.
    fn share_is_removed(&mut self, world: &World, random: &mut fastrand::Rng) -> Option<Room> {
        let key = self.key.clone();
        let tokens = [world.mint.fresh(), world.mint.fresh()];
        for token in tokens {
            self.holds(&format!("LOCK.SHARE {key} {token} PX {LEASE_MS} LIMIT 2"))?;
        }
        self.waits_for_a_share(world, 1)?;
        let line = match random.u8(..3) {
            0 => format!("ZREM {key} {}", tokens[random.usize(..2)]),
            1 => format!("ZPOPMAX {key}"),
            _ => format!("ZREMRANGEBYRANK {key} 0 0"),
        };
        self.make_room(line)
    }

    /// A writer who stood between readers leaves the line.
    fn writer_leaves(&mut self, world: &World, random: &mut fastrand::Rng) -> Option<Room> {
        let (key, writer) = (self.key.clone(), world.mint.fresh());
        self.holds(&format!("LOCK.SHARE {key} {} PX {LEASE_MS} LIMIT 2", world.mint.fresh()))?;
        self.other.send(&[format!("LOCK.ACQUIRE {key} {writer} PX 50 BLOCK {BLOCK_MS}")])?;
        self.stand_in_line(world, 1)?;
        self.waits_for_a_share(world, 2)?;
        if random.bool() {
            let room = self.make_room(format!("LOCK.RELEASE {key} {writer}"))?;
            (self.other.receive(LIMIT)? == Reply::Nil).then_some(room)
        } else {
            self.other = connect(world)?;
            Some(Room { by: "the writer has closed its connection".to_owned(), at: Instant::now() })
        }
    }

    /// Who would be told by message does not listen any more, so the lock goes to the next.
    fn nobody_listens(&mut self, world: &World, _: &mut fastrand::Rng) -> Option<Room> {
        let (key, channel, token) = (self.key.clone(), self.channel.clone(), world.mint.fresh());
        let mut listener = connect(world)?;
        listener.run(&format!("SSUBSCRIBE {channel}"));
        self.holds(&format!("LOCK.ACQUIRE {key} {token} PX {LEASE_MS}"))?;
        let unheard = world.mint.fresh();
        let line = format!("LOCK.ACQUIRE {key} {unheard} PX {LEASE_MS} BLOCK {BLOCK_MS} NOTIFY {channel}");
        (self.other.run(&line) == Reply::waiting()).then_some(())?;
        self.next.send(&[format!("LOCK.ACQUIRE {key} {} PX 50 BLOCK {BLOCK_MS}", world.mint.fresh())])?;
        self.stand_in_line(world, 2)?;
        (listener.run(&format!("SUNSUBSCRIBE {channel}")) != Reply::Closed).then_some(())?;
        self.make_room(format!("LOCK.RELEASE {key} {token}"))
    }

    fn holds(&mut self, line: &str) -> Option<()> {
        (self.holder.run(line) == 1).then_some(())
    }

    fn waits_for_a_share(&mut self, world: &World, place: i64) -> Option<()> {
        let (key, token) = (&self.key, world.mint.fresh());
        self.next.send(&[format!("LOCK.SHARE {key} {token} PX 50 LIMIT 2 BLOCK {BLOCK_MS}")])?;
        self.stand_in_line(world, place)
    }

    /// Waits until so many stand in line. None if that takes too long for the rest.
    fn stand_in_line(&mut self, world: &World, waiters: i64) -> Option<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(BLOCK_MS / 2) {
            let info = self.holder.run(&format!("LOCK.INFO {}", self.key));
            if !matches!(info, Reply::List(_)) {
                return None;
            }
            if info.get("waiters") == waiters {
                return Some(());
            }
            world.rest(Duration::from_millis(1));
        }
        None
    }

    fn make_room(&mut self, line: String) -> Option<Room> {
        (self.holder.run(&line) != Reply::Closed).then(|| Room { by: line, at: Instant::now() })
    }
}
