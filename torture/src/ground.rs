//! The server that is put under load, with what the seed chose for it.

use support::{Server, Setup};

/// How a server is set up, and how many locks are fought for on it.
#[derive(Debug)]
pub struct Ground {
    hz: u32,
    pub appends: bool,
    fsync: &'static str,
    io_threads: u32,
    rejoin_grace_ms: u32,
    pub max_lease_ms: u64,
    pub recovery_ms: u64,
    pub keys_in_each_part: usize,
}

impl Ground {
    pub fn choose(random: &mut fastrand::Rng) -> Self {
        let pick = |random: &mut fastrand::Rng, from: &[u32]| from[random.usize(..from.len())];
        Self {
            hz: pick(random, &[10, 100]),
            appends: random.bool(),
            fsync: if random.bool() { "always" } else { "everysec" },
            io_threads: pick(random, &[1, 4]),
            rejoin_grace_ms: pick(random, &[0, 300, 10_000]),
            max_lease_ms: pick(random, &[0, 0, 200]).into(),
            recovery_ms: pick(random, &[0, 0, 500, 1500]).into(),
            keys_in_each_part: random.usize(5..50),
        }
    }

    /// Starts the server; Err with its log when it ends at once.
    pub fn start(&self) -> Result<Server, String> {
        let appends = if self.appends { "yes" } else { "no" };
        let lines = format!(
            "hz {}\nappendonly {appends}\nappendfsync {}\nio-threads {}\nlock.rejoin-grace-ms {}\nbusy-reply-threshold 0\n\
            lock.max-lease-ms {}\nlock.recovery-ms {}\nmin-replicas-max-lag 1",
            self.hz, self.fsync, self.io_threads, self.rejoin_grace_ms, self.max_lease_ms, self.recovery_ms
        );
        Setup::new().config(&lines).try_start().map_err(|ended| ended.log)
    }
}
