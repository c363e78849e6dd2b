//! Servers in their recovery period.

use std::time::{Duration, Instant};

use support::{Client, Server, Setup, field, info_lock};

/// A period in which a test can do something, also on a busy machine.
pub const PERIOD: Duration = Duration::from_secs(3);

/// A busy machine may hold a server up for over a second, after which nothing is granted for this lag and three seconds.
pub const SHORT_LAG: &str = "min-replicas-max-lag 1";

/// A period that no test outlives.
pub const WITHOUT_END: &str = "lock.recovery-ms 600000";

/// A server that has just started, in a period that lasts until the test ends it.
#[track_caller]
pub fn in_a_period() -> Server {
    Setup::new().config(WITHOUT_END).start()
}

/// What remains of the period, as LOCK.INFO and INFO tell.
#[track_caller]
pub fn remaining_ms(client: &mut Client) -> i64 {
    let [shown, counted] = [field(client, "any", "recovery-ms").int(), info_lock(client, "recovery_ms")];
    assert!((0..1000).contains(&(shown - counted)), "LOCK.INFO says {shown}, and INFO {counted}");
    counted
}

/// Ends the period, or the time after a standstill.
#[track_caller]
pub fn end(client: &mut Client) {
    client.ok("CONFIG SET lock.recovery-ms 0");
    assert_eq!(remaining_ms(client), 0);
}

/// A period that began at `since` at the earliest was not over before its time.
#[track_caller]
pub fn has_lasted(since: Instant) {
    let lasted = since.elapsed();
    assert!(lasted >= PERIOD, "the period was over after {lasted:?}");
}
