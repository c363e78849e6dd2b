//! Looking at a lock and at the module's counters.

use super::{Client, Reply};

/// One field of LOCK.INFO.
#[track_caller]
pub fn field(client: &mut Client, key: &str, name: &str) -> Reply {
    client.run(&format!("LOCK.INFO {key}")).get(name)
}

/// How many requests wait for a lock.
#[track_caller]
pub fn waiters_of(client: &mut Client, key: &str) -> i64 {
    field(client, key, "waiters").int()
}

/// What is left of a lease that must exist, in milliseconds.
#[track_caller]
pub fn remaining_ms(client: &mut Client, key: &str) -> i64 {
    let left = client.pttl(key);
    assert!(left >= 0, "{key} has no lease: PTTL {left}");
    left
}

/// One counter of `INFO lock`, by its name without the module's prefix.
#[track_caller]
pub fn info_lock(client: &mut Client, name: &str) -> i64 {
    let value = client.info("lock", &format!("lock_{name}")).unwrap_or_else(|| panic!("INFO lock has no lock_{name}"));
    value.parse().unwrap_or_else(|_| panic!("lock_{name} is not a number: {value}"))
}
