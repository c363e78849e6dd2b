//! Waiting for a condition, and watching that something does not happen.

use std::env;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a test waits for what must happen. Far above what any server needs, so that only a real failure meets it.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long a test watches for what must not happen. Every such test also shows that the watched thing can happen.
pub const OBSERVATION: Duration = Duration::from_millis(150);

const POLL: Duration = Duration::from_millis(2);

/// How many times as long as elsewhere everything may take: `PATIENCE_FACTOR`, for servers that run under valgrind.
static FACTOR: LazyLock<u32> = LazyLock::new(|| {
    env::var("PATIENCE_FACTOR").map_or(1, |factor| factor.parse().expect("PATIENCE_FACTOR, a number"))
});

/// How long a test waits where it would wait for `span` on a server at full speed.
pub fn patient(span: Duration) -> Duration {
    span * *FACTOR
}

/// Returns as soon as `condition` holds; panics with `what` when it still does not after [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    assert!(happens_within(PATIENCE, &mut condition), "never came true: {what}");
}

/// Whether `condition` comes true within `span`; returns as soon as it does.
pub fn happens_within(span: Duration, condition: impl FnMut() -> bool) -> bool {
    happens_before(Instant::now() + patient(span), condition)
}

fn happens_before(deadline: Instant, mut condition: impl FnMut() -> bool) -> bool {
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL);
    }
    true
}

/// Watches for `span` that `condition` stays false; panics with `what` as soon as it holds.
#[track_caller]
pub fn never_within(span: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(!happens_before(Instant::now() + span, condition), "must not happen: {what}");
}

/// Unix time in microseconds. Test and server share the machine and so the clock.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(since.as_micros()).expect("a clock before the year 292277")
}

/// Unix time in milliseconds, rounded down as the server does.
pub fn now_ms() -> i64 {
    now_us() / 1000
}
