//! What is done to the server and its clients while they are at work, chosen by the seed.

mod clock;
mod fenced;
mod foreign;
mod gate;
mod memory;
mod paused;
mod recovery;
mod replicas;
mod restart;
mod saves;
mod server;
mod slots;
mod taking;
mod targets;

pub use foreign::meddle;
pub use replicas::compare_replica;

use std::time::Duration;

use support::Reply;

use crate::Part;
use crate::ground::{Ground, Kind};
use crate::link::Link;
use crate::scene::Scene;
use crate::world::World;

/// Of 100 faults, so many are those of the ground.
const OF_THE_GROUND: u8 = 20;
/// The same until the run has met what it is about.
const AT_FIRST: u8 = 90;
/// Of so many faults one is of a kind that the run has not met yet.
const ONE_NEW_OF: u8 = 3;

type Fault<'w> = fn(&mut Disturber<'w>);

/// A kind of fault that every run has: how many of 100, or of a few less, are of it, what it belongs to, what the figures call it or some of what
/// it makes, and what makes it.
type Common<'w> = (u8, Part, &'static str, Fault<'w>);

/// The thread that makes faults.
pub struct Disturber<'w> {
    world: &'w World,
    random: fastrand::Rng,
    scene: &'w mut Scene,
    ground: &'w Ground,
    link: Option<Link>,
}

impl<'w> Disturber<'w> {
    pub fn new(world: &'w World, scene: &'w mut Scene, ground: &'w Ground, random: fastrand::Rng) -> Self {
        Self { world, random, scene, ground, link: None }
    }

    /// Makes faults until the run is over.
    pub fn run(mut self) {
        while self.world.goes_on() {
            self.one_fault();
            let pause = self.random.u64(10..250);
            self.world.rest(Duration::from_millis(pause));
        }
    }

    fn one_fault(&mut self) {
        let of_the_ground = self.random.u8(..100) < if self.has_met_aim() { OF_THE_GROUND } else { AT_FIRST };
        let (part, fault) = if of_the_ground { self.choose_of_the_ground() } else { self.choose() };
        if self.world.has(part) {
            fault(self);
        }
    }

    /// Rare ones would not come in every run by chance alone.
    fn choose(&mut self) -> (Part, Fault<'w>) {
        let all = self.common();
        let new: Vec<_> = all.iter().filter(|(_, part, name, _)| self.world.has(*part) && self.is_new(name)).collect();
        if !new.is_empty() && self.random.u8(..ONE_NEW_OF) == 0 {
            let (_, part, _, fault) = new[self.random.usize(..new.len())];
            return (*part, *fault);
        }
        let shares: u8 = all.iter().map(|(share, ..)| share).sum();
        let mut left = self.random.u8(..shares);
        for (share, part, _, fault) in all {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return (part, fault),
            }
        }
        unreachable!("a number below all shares together is in one of them")
    }

    /// The faults that this run has whatever it is about.
    fn common(&self) -> Vec<Common<'w>> {
        let mut all: Vec<Common<'w>> = vec![
            (5, Part::Stalls, "SIGSTOP", Self::stop_process),
            (4, Part::Stalls, "DEBUG SLEEP", Self::sleep),
            (4, Part::Stalls, "slow script", Self::slow_script),
            (2, Part::Strikes, "CLIENT KILL TYPE normal", Self::kill_all),
            (15, Part::Strikes, "CLIENT UNBLOCK", Self::strike_waiters),
            (7, Part::Pauses, "CLIENT PAUSE", Self::pause),
            (5, Part::Pauses, "leases that end in a pause", Self::pause_over_leases),
            (48, Part::Strikes, "CLIENT KILL ID", Self::strike_at_release),
            (1, Part::Saves, "BGSAVE", |own| own.save(&saves::DATA)),
            (1, Part::Saves, "BGREWRITEAOF", |own| own.save(&saves::LOG)),
            (3, Part::Stalls, "CONFIG SET hz", Self::change_hz),
            (2, Part::Stalls, "CONFIG SET lock.wake-foreign", Self::change_waking),
        ];
        if self.ground.can_reload() {
            all.push((3, Part::Reloads, "DEBUG RELOAD", Self::reload));
        }
        all
    }

    /// A fault that only this kind of ground has.
    fn choose_of_the_ground(&mut self) -> (Part, Fault<'w>) {
        match self.ground.kind() {
            Kind::Plain => self.choose(),
            Kind::Memory => (Part::Ground, Self::squeeze),
            Kind::Restarts => (Part::Ground, Self::start_again),
            Kind::Replicas => (Part::Ground, Self::change_replicas),
            Kind::Slots => (Part::Ground, Self::move_slot),
            Kind::Clock => (Part::Ground, Self::set_clock),
        }
    }

    /// Whether the run has met what its ground is about.
    fn has_met_aim(&self) -> bool {
        self.world.figures.has_met(self.ground.kind().aim())
    }

    /// Whether the run has not met this yet.
    fn is_new(&self, name: &str) -> bool {
        !self.world.figures.has_met(name)
    }

    /// The ground's own fault was made, and locks that were left before are as they were, if they were found.
    fn found(&self, are_found: bool) {
        if are_found {
            self.world.figures.met(self.ground.kind().aim());
        }
    }

    /// Makes a fault that is one line, which counts if the server takes it.
    fn make(&mut self, kind: &'static str, line: &str) {
        self.world.note_fault(line);
        let reply = self.answer_to(line);
        if reply != Reply::Closed && !reply.is_error() {
            self.world.figures.fault(kind);
        }
    }

    /// The connection of this thread, or a new one.
    fn link(&mut self) -> Option<Link> {
        self.world.still(self.link.take()).or_else(|| self.world.connect(0, false))
    }

    /// Runs a line on the connection of this thread; false when that is closed.
    fn run_line(&mut self, line: &str) -> bool {
        self.answer_to(line) != Reply::Closed
    }

    fn answer_to(&mut self, line: &str) -> Reply {
        let Some(mut link) = self.link() else { return Reply::Closed };
        let reply = link.run(line);
        self.link = (reply != Reply::Closed).then_some(link);
        reply
    }
}
