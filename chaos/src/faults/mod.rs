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

use crate::end::REWRITING;
use crate::link::Link;
use crate::run::Run;
use crate::scenario::{Scenario, Settings};
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

pub struct Faults<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    servers: &'r mut Servers,
    link: Option<Link>,
}

impl<'r> Faults<'r> {
    const COMMON: [Kind<'r>; 14] = [
        (5, "SIGSTOP", Self::stop_process),
        (4, "DEBUG SLEEP", Self::sleep),
        (4, "slow script", Self::slow_script),
        (2, "CLIENT KILL TYPE normal", |faults| faults.make("CLIENT KILL TYPE normal", "")),
        (15, "CLIENT UNBLOCK", Self::strike_waiters),
        (7, "CLIENT PAUSE", Self::pause),
        (5, "leases that end in a pause", Self::pause_over_leases),
        (48, "CLIENT KILL ID", Self::strike_at_release),
        (1, "BGSAVE", |faults| faults.write_file("BGSAVE", &["rdb_bgsave_in_progress"], "rdb_last_bgsave_status")),
        (1, "BGREWRITEAOF", |faults| faults.write_file("BGREWRITEAOF", &REWRITING, "aof_last_bgrewrite_status")),
        (3, "CONFIG SET hz", Self::change_hz),
        (1, "CONFIG SET lock.wake-foreign", |faults| faults.make("CONFIG SET lock.wake-foreign", "yes")),
        (1, "CONFIG SET lock.wake-foreign", |faults| faults.make("CONFIG SET lock.wake-foreign", "no")),
        (3, "DEBUG RELOAD", Self::reload),
    ];

    pub fn new(run: &'r Run, servers: &'r mut Servers, random: fastrand::Rng) -> Self {
        Self { run, random, servers, link: None }
    }

    /// The faults that a long run makes, apart from those of its scenario.
    pub fn possible(settings: &Settings) -> impl Iterator<Item = Kind<'r>> + use<'_, 'r> {
        Self::COMMON.into_iter().filter(|(_, name, _)| *name != "DEBUG RELOAD" || settings.can_reload())
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
        match self.run.settings.scenario {
            _ if !of_the_scenario => {}
            Scenario::Memory => return Self::squeeze,
            Scenario::Restarts => return Self::restart,
            Scenario::Replicas => return Self::change_replicas,
            Scenario::Slots => return Self::move_slot,
            Scenario::Clock => return Self::set_clock,
            _ => {}
        }
        let all = || Self::possible(&self.run.settings);
        let new: Vec<_> = all().filter(|(_, name, _)| self.is_new(name)).collect();
        if let Some((.., fault)) = self.random.choice(new).filter(|_| self.random.u8(..ONE_NEW_OF) == 0) {
            return fault;
        }
        let each = all().flat_map(|(share, .., fault)| std::iter::repeat_n(fault, share));
        self.random.choice(each.collect::<Vec<_>>()).unwrap_or(|_| ())
    }

    fn has_met_aim(&self) -> bool {
        self.run.counters.has(self.run.settings.scenario.aim())
    }

    fn is_new(&self, name: &str) -> bool {
        !self.run.counters.has(name)
    }

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
