//! The faults of a load run, which the seed chooses.

mod clock;
mod contention;
mod external;
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

/// A kind of fault: how many of about 100 are of it, the name of its counter or of one that it leads to, and what
/// makes it.
type Kind<'r> = (usize, &'static str, fn(&mut Faults<'r>));

/// The thread that makes faults.
pub struct Faults<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    servers: &'r mut Servers,
    link: Option<Link>,
}

impl<'r> Faults<'r> {
    /// The faults of all scenarios.
    const COMMON: [Kind<'r>; 13] = [
        (5, "SIGSTOP", Self::stop_process),
        (4, "DEBUG SLEEP", Self::sleep),
        (4, "slow script", Self::slow_script),
        (2, "CLIENT KILL TYPE normal", |faults| faults.make("CLIENT KILL TYPE normal", "")),
        (15, "CLIENT UNBLOCK", Self::strike_waiters),
        (7, "CLIENT PAUSE", Self::pause),
        (5, "leases that end in a pause", Self::pause_over_leases),
        (48, "CLIENT KILL ID", Self::strike_at_release),
        (1, "BGSAVE", Self::save_data),
        (1, "BGREWRITEAOF", Self::rewrite_file),
        (3, "CONFIG SET hz", Self::change_hz),
        (2, "CONFIG SET lock.wake-foreign", Self::change_waking),
        (3, "DEBUG RELOAD", Self::reload),
    ];

    pub fn new(run: &'r Run, servers: &'r mut Servers, random: fastrand::Rng) -> Self {
        Self { run, random, servers, link: None }
    }

    pub fn run(mut self) {
        while self.run.goes_on() && !self.run.is(Scenario::Soak) {
            self.choose()(&mut self);
            let pause = self.random.u64(10..250);
            self.run.rest(Duration::from_millis(pause));
        }
    }

    /// Rare faults would not come in every run by chance alone.
    fn choose(&mut self) -> fn(&mut Self) {
        let of_the_scenario = self.random.u8(..100) < if self.has_met_aim() { OF_THE_SCENARIO } else { AT_FIRST };
        if of_the_scenario {
            match self.run.settings.scenario {
                Scenario::Memory => return Self::squeeze,
                Scenario::Restarts => return Self::restart,
                Scenario::Replicas => return Self::change_replicas,
                Scenario::Slots => return Self::move_slot,
                Scenario::Clock => return Self::set_clock,
                _ => {}
            }
        }
        let is_possible = |name: &str| name != "DEBUG RELOAD" || self.run.settings.can_reload();
        let all: Vec<_> = Self::COMMON.into_iter().filter(|(_, name, _)| is_possible(name)).collect();
        let new: Vec<_> = all.iter().filter(|(_, name, _)| self.is_new(name)).collect();
        if !new.is_empty() && self.random.u8(..ONE_NEW_OF) == 0 {
            return new[self.random.usize(..new.len())].2;
        }
        let each = all.iter().flat_map(|(share, .., fault)| std::iter::repeat_n(*fault, *share));
        self.random.choice(each.collect::<Vec<_>>()).unwrap_or(|_| ())
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

    fn some_ms(&mut self, ms: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(ms))
    }

    /// Makes a fault of one line, which counts if the server takes it.
    fn make(&mut self, kind: &'static str, argument: impl std::fmt::Display) {
        let line = format!("{kind} {argument}");
        self.run.fault(&line);
        let reply = self.reply_to(&line);
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
