//! What is done to the server and its clients while they are at work, chosen by the seed.

mod foreign;
mod gate;
mod server;
mod targets;

pub use foreign::meddle;

use std::time::Duration;

use support::Server;
use support::process::Process;

use crate::Part;
use crate::link::Link;
use crate::world::World;

/// The thread that makes faults.
pub struct Disturber<'w> {
    world: &'w World,
    random: fastrand::Rng,
    process: Process,
    link: Option<Link>,
}

impl<'w> Disturber<'w> {
    pub fn new(world: &'w World, server: &Server, random: fastrand::Rng) -> Self {
        Self { world, random, process: Process::of(server), link: None }
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
        let (part, fault) = self.choose();
        if self.world.has(part) {
            fault(self);
        }
    }

    fn choose(&mut self) -> (Part, fn(&mut Self)) {
        match self.random.u8(..100) {
            0..5 => (Part::Stalls, Self::stop_process),
            5..9 => (Part::Stalls, Self::sleep),
            9..13 => (Part::Stalls, Self::slow_script),
            13..15 => (Part::Strikes, Self::kill_all),
            15..30 => (Part::Strikes, Self::strike_waiters),
            30..42 => (Part::Pauses, Self::pause),
            42..92 => (Part::Strikes, Self::strike_at_release),
            92..95 => (Part::Reloads, Self::reload),
            _ => (Part::Stalls, Self::change_hz),
        }
    }

    /// Makes a fault that is one line.
    fn make(&mut self, kind: &'static str, line: &str) {
        self.world.fault(kind, line);
        self.run_line(line);
    }

    /// Runs a line on the connection of this thread.
    fn run_line(&mut self, line: &str) {
        let link = self.link.take().or_else(|| self.world.connect(0, false));
        if let Some(mut link) = link {
            if link.run(line) != support::Reply::Closed {
                self.link = Some(link);
            }
        }
    }
}
