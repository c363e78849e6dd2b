//! The cycles whose instructions are counted: a lock that is acquired and released in each of the compared ways, and the commands
//! of clients that do not lock.

use super::workload::{Line, Workload};
use crate::protocols::{CHANNEL, LATCH, LOCK, PING, Plain, REENTER, SET_NX_DEL, SET_NX_SCRIPT, UNLOCK};

const KEY: &str = "door";
/// As Redisson names the holder: the client's UUID and a thread.
const OWNER: &str = "a2d1c0de-7f3b-4e65-9a0b-5c6d7e8f9012:27";
/// The other connections, which wait for a lock.
pub const OTHERS: usize = 100;

/// Acquires and releases once.
pub fn of(plain: Plain, acquired: &'static str, released: &'static str) -> Workload {
    let [acquire, release] = [plain.acquire, plain.release].map(|line| line.replace("{key}", KEY));
    Workload::new(&[(acquire, acquired), (release, released)])
}

pub fn ping() -> Workload {
    Workload::new(&[(PING.acquire, "PONG")])
}

pub fn set_and_del() -> Workload {
    of(SET_NX_DEL, "OK", "1")
}

pub fn set_and_script() -> Workload {
    of(SET_NX_SCRIPT, "OK", "1")
}

pub fn acquire_and_release() -> Workload {
    of(LOCK, "1", "0")
}

/// Two holds and their release.
pub fn reenter_and_release() -> Workload {
    let [acquire, release] =
        [REENTER.acquire, REENTER.release].map(|line| line.replace("{key}", KEY).replace("{client}", OWNER));
    Workload::new(&[(&acquire, "1"), (&acquire, "2"), (&release, "1"), (&release, "0")])
}

/// The same as Redisson does it. Each unlock leaves a latch, which the client deletes.
pub fn redisson() -> Workload {
    let with_lock = |line: &str| line.replace("{key}", KEY).replace("{owner}", OWNER);
    let lock = with_lock("EVALSHA {redisson-lock} 1 {key} 30000 {owner}");
    let [first, second] = ["", ":2"].map(|request| with_lock(LATCH) + request);
    let unlock = |latch: &str| with_lock(&UNLOCK.replace("{channel}", CHANNEL).replace("{latch}", latch));
    Workload::new(&[
        (lock.clone(), "nil"),
        (lock, "nil"),
        (unlock(&first), "0"),
        (format!("DEL {first}"), "1"),
        (unlock(&second), "1"),
        (format!("DEL {second}"), "1"),
    ])
}

/// The effects of a share and its release.
pub fn zadd_and_zrem() -> Workload {
    Workload::new(&[MEMBER, EXPIRE, ("ZREM door {token}", "1")])
}

pub fn share_and_release() -> Workload {
    Workload::new(&[("LOCK.SHARE door {token} PX 30000", "1"), RELEASE])
}

/// The same for a permit of a semaphore.
pub fn permit_and_release() -> Workload {
    Workload::new(&[("LOCK.SHARE door {token} PX 30000 LIMIT 10", "1"), RELEASE])
}

pub fn redis_semaphore() -> Workload {
    let acquire = "EVALSHA {redis-semaphore-acquire} 1 door 10 {token} 30000 1800000000000";
    Workload::new(&[(acquire, "1"), ("ZREM door {token}", "1")])
}

/// While nine other clients hold shares.
pub fn with_nine_holders(workload: Workload) -> Workload {
    workload.prepared_by(("ZADD door 1800000030000 other{n}", "1"), 9).prepared_by(EXPIRE, 1)
}

const MEMBER: Line = ("ZADD door 1800000030000 {token}", "1");
const EXPIRE: Line = ("PEXPIREAT door 1800000030000", "1");
const RELEASE: Line = ("LOCK.RELEASE door {token}", "0");

/// A DEL of a key in each cycle.
pub fn del(cycles: u64) -> Workload {
    // Some keys remain, so that the server does not shrink its table. The number is just below a power of two, so that the
    // server does not rehash the table.
    let keys = (2 * cycles).next_power_of_two() - 1;
    Workload::new(&[("DEL k:{n}", "1")]).prepared_by(("SET k:{n} value", "OK"), keys)
}
