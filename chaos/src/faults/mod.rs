//! The faults of a load run, which the seed chooses.

mod clock;
mod contention;
mod external;
mod external_writes;
mod recovery;
mod replicas;
mod restart;
mod server;
mod settings;
mod slots;
mod strikes;

pub use external::send_external_commands;
pub use replicas::compare_at_end;
pub use settings::change_settings;

use std::time::Duration;

use support::Reply;

use crate::Part;
use crate::link::Link;
use crate::run::Run;
use crate::scenario::Scenario;
use crate::servers::Servers;

/// The number of faults of the scenario among 100.
const OF_THE_SCENARIO: u8 = 20;
/// The same until the run has met what it is about.
const AT_FIRST: u8 = 90;
/// One fault of this number is of a kind that the run has not met yet.
const ONE_NEW_OF: u8 = 3;

type Fault<'r> = fn(&mut Faults<'r>);

/// A kind of fault of all scenarios: how many of about 100 are of it, its part, the name of its counter or of one that
/// it leads to, and what makes it.
type Common<'r> = (u8, Part, &'static str, Fault<'r>);

/// The thread that makes faults.
pub struct Faults<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    servers: &'r mut Servers,
    link: Option<Link>,
}

impl<'r> Faults<'r> {
    pub fn new(run: &'r Run, servers: &'r mut Servers, random: fastrand::Rng) -> Self {
        Self { run, random, servers, link: None }
    }

    /// Makes faults until the run is over.
    pub fn run(mut self) {
        while self.run.goes_on() && !self.run.is(Scenario::Soak) {
            let of_the_scenario = self.random.u8(..100) < if self.has_met_aim() { OF_THE_SCENARIO } else { AT_FIRST };
            let (part, fault) = if of_the_scenario { self.choose_of_the_scenario() } else { self.choose() };
            if self.run.has(part) {
                fault(&mut self);
            }
            let pause = self.random.u64(10..250);
            self.run.rest(Duration::from_millis(pause));
        }
    }

    /// Rare faults would not come in every run by chance alone.
    fn choose(&mut self) -> (Part, Fault<'r>) {
        let all = self.common();
        let new: Vec<_> = all.iter().filter(|(_, part, name, _)| self.run.has(*part) && self.is_new(name)).collect();
        if !new.is_empty() && self.random.u8(..ONE_NEW_OF) == 0 {
            let (_, part, _, fault) = new[self.random.usize(..new.len())];
            return (*part, *fault);
        }
        let each = all.iter().flat_map(|(share, part, _, fault)| std::iter::repeat_n((*part, *fault), (*share).into()));
        self.random.choice(each.collect::<Vec<_>>()).expect("a fault")
    }

    /// The faults of all scenarios.
    fn common(&self) -> Vec<Common<'r>> {
        let mut all: Vec<Common<'r>> = vec![
            (5, Part::Stalls, "SIGSTOP", Self::stop_process),
            (4, Part::Stalls, "DEBUG SLEEP", Self::sleep),
            (4, Part::Stalls, "slow script", Self::slow_script),
            (2, Part::Strikes, "CLIENT KILL TYPE normal", Self::kill_all),
            (15, Part::Strikes, "CLIENT UNBLOCK", Self::strike_waiters),
            (7, Part::Pauses, "CLIENT PAUSE", Self::pause),
            (5, Part::Pauses, "leases that end in a pause", Self::pause_over_leases),
            (48, Part::Strikes, "CLIENT KILL ID", Self::strike_at_release),
            (1, Part::Saves, "BGSAVE", Self::save_data),
            (1, Part::Saves, "BGREWRITEAOF", Self::rewrite_file),
            (3, Part::Stalls, "CONFIG SET hz", Self::change_hz),
            (2, Part::Stalls, "CONFIG SET lock.wake-foreign", Self::change_waking),
        ];
        if self.run.settings.can_reload() {
            all.push((3, Part::Reloads, "DEBUG RELOAD", Self::reload));
        }
        all
    }

    /// A fault that only this scenario has.
    fn choose_of_the_scenario(&mut self) -> (Part, Fault<'r>) {
        match self.run.settings.scenario {
            Scenario::Memory => (Part::Scenario, Self::squeeze),
            Scenario::Restarts => (Part::Scenario, Self::restart),
            Scenario::Replicas => (Part::Scenario, Self::change_replicas),
            Scenario::Slots => (Part::Scenario, Self::move_slot),
            Scenario::Clock => (Part::Scenario, Self::set_clock),
            _ => self.choose(),
        }
    }

    fn has_met_aim(&self) -> bool {
        self.run.counters.has(self.run.settings.scenario.aim())
    }

    fn is_new(&self, name: &str) -> bool {
        !self.run.counters.has(name)
    }

    /// Counts what the scenario is about, if it was met.
    fn aim_met(&self, is_met: bool) {
        if is_met {
            self.run.counters.count(self.run.settings.scenario.aim());
        }
    }

    /// Makes a fault of one line, which counts if the server takes it.
    fn make(&mut self, kind: &'static str, line: &str) {
        self.run.fault(line);
        let reply = self.reply_to(line);
        if reply != Reply::Closed && !reply.is_error() {
            self.run.counters.count(kind);
        }
    }

    /// The connection of this thread, or a new one.
    fn link(&mut self) -> Option<Link> {
        self.run.current(self.link.take()).or_else(|| self.run.connect(0, false))
    }

    /// Repeats a line, which ends a fault, until the server has replied.
    fn insist(&mut self, line: &str) {
        self.run.fault(line);
        while !self.run.is_over() && self.reply_to(line) == Reply::Closed {}
    }

    fn reply_to(&mut self, line: &str) -> Reply {
        let Some(mut link) = self.link() else { return Reply::Closed };
        let reply = link.run(line);
        self.link = (reply != Reply::Closed).then_some(link);
        reply
    }
}
