//! How the servers are set up, and the recovery period that follows by the rule of docs/guides/failover.md.

use std::time::Duration;

/// The longest lease.
pub const L: Duration = Duration::from_secs(1);
/// The replicas of each master, all of which have to be there.
pub const REPLICAS: usize = 2;
/// By how much replication is delayed before a master is killed.
pub const DELAY: Duration = Duration::from_millis(500);
/// After so much silence a Sentinel, or a node of a cluster, thinks that the other is down.
pub const DOWN_AFTER_MS: u32 = 700;

const MAX_LAG_S: u64 = 1;
const REPL_TIMEOUT_S: u64 = 3;

/// What `lock.recovery-ms` has to be: L and S.
pub fn recovery() -> Duration {
    let noticed = Duration::from_secs(MAX_LAG_S + 3).max(Duration::from_secs(REPL_TIMEOUT_S));
    L + noticed + DELAY
}

/// The configuration that all servers share, with the recovery period or without it.
pub fn config(with_period: bool) -> String {
    let recovery_ms = if with_period { recovery().as_millis() } else { 0 };
    format!(
        "repl-diskless-sync-delay 0\n\
         repl-ping-replica-period 1\n\
         repl-timeout {REPL_TIMEOUT_S}\n\
         min-replicas-max-lag {MAX_LAG_S}\n\
         min-replicas-to-write {REPLICAS}\n\
         lock.max-lease-ms {}\n\
         lock.recovery-ms {recovery_ms}",
        L.as_millis()
    )
}
