//! The server that is put under load, with what the seed chose for it.

use clap::ValueEnum;
use support::Setup;
use support::replicas::REPLICATION;

/// What a run is about, beside what all runs are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Nothing else
    Plain,
    /// Memory that runs out, with or without eviction
    Memory,
    /// A server that ends, by kill -9 too, and starts again
    Restarts,
    /// Replicas that come and go, and take over
    Replicas,
    /// A cluster whose slots move
    Slots,
    /// A wall clock that is set forward and back
    Clock,
}

impl Kind {
    /// What a run on this ground must have met, as the figures call it.
    pub fn aim(self) -> &'static str {
        match self {
            Self::Plain => "quiet locks",
            Self::Memory => "memory that ran out",
            Self::Restarts => "locks found after a restart",
            Self::Replicas => "locks found after a FAILOVER",
            Self::Slots => "locks found after a move",
            Self::Clock => "locks found after a step",
        }
    }

    /// Whether there is one server all the time, so that its settings are those that it was told.
    pub fn keeps_its_server(self) -> bool {
        matches!(self, Self::Plain | Self::Memory)
    }

    /// How often the server's cron runs in a second at least. Each time it looks at five clients or a few more, those that have
    /// come last first, and tells who waits that the slot has left. At 10 Hz, Redis 7.0 comes to nobody else where many
    /// connections are made.
    pub fn least_hz(self) -> u32 {
        if self == Self::Slots { 100 } else { 10 }
    }
}

/// How a server is set up, and how many locks are fought for on it.
#[derive(Debug)]
pub struct Ground {
    kind: Kind,
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

impl Ground {
    /// One of this kind, or of any; the clock can be set only where there is one of the server's own.
    pub fn choose(kind: Option<Kind>, has_clock: bool, random: &mut fastrand::Rng) -> Self {
        fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
            from[random.usize(..from.len())]
        }
        let kinds: Vec<Kind> =
            Kind::value_variants().iter().copied().filter(|kind| has_clock || *kind != Kind::Clock).collect();
        let any = pick(random, &kinds);
        let policies = ["noeviction", "noeviction", "allkeys-lru", "volatile-ttl"];
        let policy = pick(random, &policies);
        let kind = kind.unwrap_or(any);
        let max_lease_ms = pick(random, &[0, 0, 200]);
        // Between two restarts there is to be more than the period.
        let periods = if kind == Kind::Restarts { [0, 0, 300, 800] } else { [0, 0, 500, 1500] };
        let recovery_ms = pick(random, &periods);
        let appends = random.bool();
        let fsync = pick(random, &["always", "everysec"]);
        Self {
            kind,
            hz: pick(random, &[10, 100]).max(kind.least_hz()),
            appends: appends && kind != Kind::Slots,
            fsync: if kind == Kind::Restarts { "always" } else { fsync },
            io_threads: pick(random, &[1, 4]),
            rejoin_grace_ms: pick(random, &[0, 300, 10_000]),
            max_lease_ms: if kind.keeps_its_server() { max_lease_ms } else { 0 },
            recovery_ms: if kind.keeps_its_server() || kind == Kind::Restarts { recovery_ms } else { 0 },
            wakes_foreign: pick(random, &["no", "yes"]),
            keys_in_each_part: random.usize(5..50),
            policy: if kind == Kind::Memory { policy } else { "noeviction" },
            diskless_sync: pick(random, &["no", "yes"]),
            diskless_load: pick(random, &["disabled", "on-empty-db", "swapdb"]),
        }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether any lock may be taken from its holder to make room.
    pub fn evicts(&self) -> bool {
        self.policy != "noeviction"
    }

    /// Whether locks stay as they are when nobody touches them.
    pub fn has_quiet_locks(&self) -> bool {
        !self.evicts() && !matches!(self.kind, Kind::Slots | Kind::Clock)
    }

    /// The codes of errors with which the server may refuse a command, before it has done anything of it.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Plain | Kind::Restarts | Kind::Clock => &["LOADING"],
            Kind::Memory => &["LOADING", "OOM"],
            Kind::Slots => &["LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"],
            Kind::Replicas => &["LOADING", "NOREPLICAS", "READONLY", "UNBLOCKED"],
        }
    }

    /// Whether DEBUG RELOAD does no harm. What has expired it leaves out, of which it tells neither replicas nor the
    /// append-only file.
    pub fn can_reload(&self) -> bool {
        !matches!(self.kind, Kind::Restarts | Kind::Replicas | Kind::Slots)
    }

    pub fn setup(&self) -> Setup {
        self.without_module(Setup::new()).config(&format!(
            "lock.rejoin-grace-ms {}\nlock.max-lease-ms {}\nlock.recovery-ms {}\nlock.wake-foreign {}",
            self.rejoin_grace_ms, self.max_lease_ms, self.recovery_ms, self.wakes_foreign
        ))
    }

    /// The same server without the module.
    pub fn bare_setup(&self) -> Setup {
        self.without_module(Setup::new().without_module())
    }

    fn without_module(&self, setup: Setup) -> Setup {
        let appends = if self.appends { "yes" } else { "no" };
        setup.config(REPLICATION).config(&format!(
            "hz {}\nappendonly {appends}\nappendfsync {}\nio-threads {}\nbusy-reply-threshold 0\nmaxmemory-policy {}\n\
             repl-diskless-sync {}\nrepl-diskless-load {}\nmin-replicas-max-lag 1",
            self.hz, self.fsync, self.io_threads, self.policy, self.diskless_sync, self.diskless_load
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_memory_runs_out_are_locks_evicted_and_requests_refused_for_it() {
        let mut random = fastrand::Rng::with_seed(1);
        let grounds: Vec<Ground> = (0..200).map(|_| Ground::choose(None, true, &mut random)).collect();
        assert!(grounds.iter().any(Ground::evicts));
        for ground in &grounds {
            assert!(!ground.evicts() || ground.kind() == Kind::Memory);
            assert_eq!(ground.refusals().contains(&"OOM"), ground.kind() == Kind::Memory);
        }
    }

    #[test]
    fn a_kind_can_be_asked_for() {
        let mut random = fastrand::Rng::with_seed(1);
        assert!((0..20).all(|_| Ground::choose(Some(Kind::Memory), false, &mut random).kind() == Kind::Memory));
    }
}
