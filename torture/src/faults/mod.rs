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

type Fault<'w> = fn(&mut Disturber<'w>);

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

    fn choose(&mut self) -> (Part, Fault<'w>) {
        match self.random.u8(..100) {
            0..5 => (Part::Stalls, Self::stop_process),
            5..9 => (Part::Stalls, Self::sleep),
            9..13 => (Part::Stalls, Self::slow_script),
            13..15 => (Part::Strikes, Self::kill_all),
            15..30 => (Part::Strikes, Self::strike_waiters),
            30..37 => (Part::Pauses, Self::pause),
            37..42 => (Part::Pauses, Self::pause_over_leases),
            42..90 => (Part::Strikes, Self::strike_at_release),
            90..92 => (Part::Saves, Self::save),
            92..95 if self.ground.can_reload() => (Part::Reloads, Self::reload),
            95..98 => (Part::Stalls, Self::change_hz),
            _ => (Part::Stalls, Self::change_waking),
        }
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

    /// The ground's own fault was made, and locks that were left before are as they were, if they were found.
    fn found(&self, are_found: bool) {
        if are_found {
            self.world.figures.met(self.ground.kind().aim());
        }
    }

    /// Makes a fault that is one line.
    fn make(&mut self, kind: &'static str, line: &str) {
        self.world.fault(kind, line);
        self.run_line(line);
    }

    /// The connection of this thread, or a new one.
    fn link(&mut self) -> Option<Link> {
        self.world.still(self.link.take()).or_else(|| self.world.connect(0, false))
    }

    /// Runs a line on the connection of this thread; false when that is closed.
    fn run_line(&mut self, line: &str) -> bool {
        self.link = self.link().and_then(|mut link| (link.run(line) != Reply::Closed).then_some(link));
        self.link.is_some()
    }
}
