//! What a run is about, and the settings of its servers, which the seed chooses.

use clap::ValueEnum;
use support::Setup;
use support::replicas::REPLICATION;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Load and the faults of every scenario
    Plain,
    /// Memory that runs out, with or without eviction
    Memory,
    /// A server that ends, also by kill -9, and starts again
    Restarts,
    /// Replicas that come and go, and take over
    Replicas,
    /// A cluster whose slots move
    Slots,
    /// A wall clock that is set forward and back
    Clock,
    /// Load without faults: memory stays the same
    Soak,
    /// Masters that Sentinel replaces under faults
    Sentinel,
    /// Masters that a cluster replaces under faults
    Cluster,
    /// Sentinel and cluster at the same time
    Failover,
}

impl Scenario {
    /// The scenarios that a seed chooses from, at the end the one that needs a clock.
    pub const SEEDED: [Self; 6] = [Self::Plain, Self::Memory, Self::Restarts, Self::Replicas, Self::Slots, Self::Clock];

    /// What a run must have met, by the name of its counter.
    pub fn aim(self) -> &'static str {
        match self {
            Self::Memory => "memory that ran out",
            Self::Restarts => "locks found after a restart",
            Self::Replicas => "locks found after a FAILOVER",
            Self::Slots => "locks found after a move",
            Self::Clock => "locks found after a step",
            _ => "quiet locks",
        }
    }

    /// Whether there is one server all the time, so that the settings in force are known.
    pub fn keeps_its_server(self) -> bool {
        matches!(self, Self::Plain | Self::Memory)
    }

    /// The lowest `hz` of the server. Its cron finds a few blocked clients each time, the latest first, whose slot has
    /// moved. At 10 Hz Redis 7.0 does not reach the others while many connections are made.
    pub fn least_hz(self) -> u32 {
        if self == Self::Slots { 100 } else { 10 }
    }
}

/// The settings of the servers of a run, and how many locks the clients contend for.
#[derive(Debug)]
pub struct Settings {
    pub scenario: Scenario,
    pub appends: bool,
    pub max_lease_ms: u64,
    pub recovery_ms: u64,
    pub keys_in_each_part: usize,
    policy: &'static str,
    server: String,
    module: String,
}

fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

impl Settings {
    /// Settings for this scenario, or for any. `has_clock`: the clock of the server can be set.
    pub fn choose(scenario: Option<Scenario>, has_clock: bool, random: &mut fastrand::Rng) -> Self {
        let scenario = scenario.unwrap_or(pick(random, &Scenario::SEEDED[..if has_clock { 6 } else { 5 }]));
        let (is_soak, restarts) = (scenario == Scenario::Soak, scenario == Scenario::Restarts);
        let policy = pick(random, &["noeviction", "noeviction", "allkeys-lru", "volatile-ttl"]);
        let policy = if scenario == Scenario::Memory { policy } else { "noeviction" };
        let max_lease_ms = pick(random, &[0, 0, 200]);
        let max_lease_ms = if scenario.keeps_its_server() { max_lease_ms } else { 0 };
        // There must be more time than this between two restarts.
        let recovery_ms = pick(random, if restarts { &[0, 0, 300, 800] } else { &[0, 0, 500, 1500] });
        let recovery_ms = if scenario.keeps_its_server() || restarts { recovery_ms } else { 0 };
        let appends = random.bool() && scenario != Scenario::Slots && !is_soak;
        let fsync = pick(random, if restarts { &["always"] } else { &["always", "everysec"] });
        let hz = pick(random, &[10, 100]).max(scenario.least_hz());
        let io_threads = if is_soak { 1 } else { pick(random, &[1, 4]) };
        let [diskless_sync, wakes_foreign] = [(); 2].map(|()| pick(random, &["no", "yes"]));
        let diskless_load = pick(random, &["disabled", "on-empty-db", "swapdb"]);
        // The slow log of a server would grow during a soak.
        let slow_log = if is_soak { "slowlog-log-slower-than -1" } else { "" };
        let server = format!(
            "hz {hz}\nappendonly {}\nappendfsync {fsync}\nio-threads {io_threads}\nbusy-reply-threshold 0\n\
             maxmemory-policy {policy}\nrepl-diskless-sync {diskless_sync}\nrepl-diskless-load {diskless_load}\n\
             min-replicas-max-lag 1\n{slow_log}",
            if appends { "yes" } else { "no" }
        );
        let rejoin_grace_ms = if is_soak { 1000 } else { pick(random, &[0, 300, 10_000]) };
        let module = format!(
            "lock.rejoin-grace-ms {rejoin_grace_ms}\nlock.max-lease-ms {max_lease_ms}\nlock.recovery-ms {recovery_ms}\n\
             lock.wake-foreign {wakes_foreign}"
        );
        let keys_in_each_part = if is_soak { 50 } else { random.usize(5..50) };
        Self { scenario, appends, max_lease_ms, recovery_ms, keys_in_each_part, policy, server, module }
    }

    pub fn evicts(&self) -> bool {
        self.policy != "noeviction"
    }

    /// Whether locks stay the same while no request touches them.
    pub fn has_quiet_locks(&self) -> bool {
        !self.evicts() && !matches!(self.scenario, Scenario::Slots | Scenario::Clock)
    }

    /// The codes of errors with which the server can refuse a command because of a fault, before it has done anything
    /// of it.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self.scenario {
            Scenario::Memory => &["LOADING", "OOM"],
            Scenario::Slots => &["LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"],
            Scenario::Replicas => &["LOADING", "NOREPLICAS", "READONLY", "UNBLOCKED"],
            _ => &["LOADING"],
        }
    }

    /// Whether DEBUG RELOAD is harmless. It leaves out expired keys, and writes no deletion to replicas and the
    /// append-only file.
    pub fn can_reload(&self) -> bool {
        !matches!(self.scenario, Scenario::Restarts | Scenario::Replicas | Scenario::Slots)
    }

    pub fn setup(&self, with_module: bool) -> Setup {
        let setup = Setup::new().config(REPLICATION).config(&self.server);
        if with_module { setup.config(&self.module) } else { setup.without_module() }
    }
}
