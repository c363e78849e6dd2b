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
    /// The scenarios that a seed chooses from.
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

    /// Whether leases end when they must by the clock of the machine.
    pub fn has_steady_clock(self) -> bool {
        self != Self::Clock
    }
}

/// The settings of the servers of a run, and how many locks the clients contend for.
#[derive(Debug)]
pub struct Settings {
    pub scenario: Scenario,
    hz: u32,
    pub appends: bool,
    fsync: &'static str,
    io_threads: u32,
    rejoin_grace_ms: u32,
    pub max_lease_ms: u64,
    pub recovery_ms: u64,
    wakes_foreign: &'static str,
    pub keys_in_each_part: usize,
    policy: &'static str,
    diskless_sync: &'static str,
    diskless_load: &'static str,
}

impl Settings {
    /// Settings for this scenario, or for any. `has_clock`: the clock of the server can be set.
    pub fn choose(scenario: Option<Scenario>, has_clock: bool, random: &mut fastrand::Rng) -> Self {
        fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
            from[random.usize(..from.len())]
        }
        let any: Vec<Scenario> =
            Scenario::SEEDED.into_iter().filter(|scenario| has_clock || scenario.has_steady_clock()).collect();
        let any = pick(random, &any);
        let policy = pick(random, &["noeviction", "noeviction", "allkeys-lru", "volatile-ttl"]);
        let scenario = scenario.unwrap_or(any);
        let max_lease_ms = pick(random, &[0, 0, 200]);
        // There must be more time than this between two restarts.
        let periods = if scenario == Scenario::Restarts { [0, 0, 300, 800] } else { [0, 0, 500, 1500] };
        let recovery_ms = pick(random, &periods);
        let appends = random.bool();
        let fsync = pick(random, &["always", "everysec"]);
        let is_soak = scenario == Scenario::Soak;
        Self {
            scenario,
            hz: pick(random, &[10, 100]).max(scenario.least_hz()),
            appends: appends && scenario != Scenario::Slots && !is_soak,
            fsync: if scenario == Scenario::Restarts { "always" } else { fsync },
            io_threads: if is_soak { 1 } else { pick(random, &[1, 4]) },
            rejoin_grace_ms: if is_soak { 1000 } else { pick(random, &[0, 300, 10_000]) },
            max_lease_ms: if scenario.keeps_its_server() { max_lease_ms } else { 0 },
            recovery_ms: if scenario.keeps_its_server() || scenario == Scenario::Restarts { recovery_ms } else { 0 },
            wakes_foreign: pick(random, &["no", "yes"]),
            keys_in_each_part: if is_soak { 50 } else { random.usize(5..50) },
            policy: if scenario == Scenario::Memory { policy } else { "noeviction" },
            diskless_sync: pick(random, &["no", "yes"]),
            diskless_load: pick(random, &["disabled", "on-empty-db", "swapdb"]),
        }
    }

    /// Whether any lock can be evicted.
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

    pub fn setup(&self) -> Setup {
        self.server(Setup::new()).config(&format!(
            "lock.rejoin-grace-ms {}\nlock.max-lease-ms {}\nlock.recovery-ms {}\nlock.wake-foreign {}",
            self.rejoin_grace_ms, self.max_lease_ms, self.recovery_ms, self.wakes_foreign
        ))
    }

    /// The same server without the module.
    pub fn setup_without_module(&self) -> Setup {
        self.server(Setup::new().without_module())
    }

    fn server(&self, setup: Setup) -> Setup {
        let appends = if self.appends { "yes" } else { "no" };
        // The slow log of a server would grow during a soak.
        let slow_log = if self.scenario == Scenario::Soak { "slowlog-log-slower-than -1" } else { "" };
        setup.config(REPLICATION).config(slow_log).config(&format!(
            "hz {}\nappendonly {appends}\nappendfsync {}\nio-threads {}\nbusy-reply-threshold 0\nmaxmemory-policy {}\n\
             repl-diskless-sync {}\nrepl-diskless-load {}\nmin-replicas-max-lag 1",
            self.hz, self.fsync, self.io_threads, self.policy, self.diskless_sync, self.diskless_load
        ))
    }
}
