//! The cycles whose server work is counted: a lock taken and given back, in each of the ways that are compared.

use support::Reply;

use super::workload::{Step, Workload, ok};
use crate::protocols::redisson::{LATCH_MS, PUBLISH, UNLOCK_MESSAGE, channel, latch};
use crate::protocols::scripts::{REDIS_PY_RELEASE, REDISSON_LOCK, REDISSON_UNLOCK, Script};

/// A lease, in milliseconds, as Redisson and most examples have it.
pub(super) const LEASE_MS: &str = "30000";
/// As Redisson names the holder: the client's UUID and a thread.
const OWNER: &str = "a2d1c0de-7f3b-4e65-9a0b-5c6d7e8f9012:27";

/// 32 hex digits, a fresh token for each cycle, as redis-py's `uuid1().hex`.
pub(super) fn token(number: u64) -> String {
    format!("{:032x}", (u128::from(number) + 1) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835 % u128::MAX)
}

fn set_nx(token: &str) -> Step {
    Step::new(&["SET", "door", token, "NX", "PX", LEASE_MS], ok())
}

/// Scripts are loaded once, as every client library does.
fn loaded(workload: Workload) -> Workload {
    let load = |script: &Script| Step::new(&["SCRIPT", "LOAD", script.text], Reply::text(&script.sha1()));
    workload.prepared_by([REDIS_PY_RELEASE, REDISSON_LOCK, REDISSON_UNLOCK].iter().map(load).collect())
}

pub fn ping() -> Workload {
    Workload::new(|_| vec![Step::line("PING", Reply::Status("PONG".to_owned()))])
}

pub fn set_and_del() -> Workload {
    Workload::new(|number| vec![set_nx(&token(number)), Step::line("DEL door", Reply::Int(1))])
}

pub fn set_and_delifeq() -> Workload {
    Workload::new(|number| {
        let token = token(number);
        vec![set_nx(&token), Step::new(&["DELIFEQ", "door", &token], Reply::Int(1))]
    })
}

pub fn set_and_script() -> Workload {
    let release = REDIS_PY_RELEASE.sha1();
    loaded(Workload::new(move |number| {
        let token = token(number);
        vec![set_nx(&token), Step::new(&["EVALSHA", &release, "1", "door", &token], Reply::Int(1))]
    }))
}

pub fn acquire_and_release() -> Workload {
    Workload::new(|number| {
        let token = token(number);
        vec![
            Step::new(&["LOCK.ACQUIRE", "door", &token, "PX", LEASE_MS], Reply::Int(1)),
            Step::new(&["LOCK.RELEASE", "door", &token], Reply::Int(0)),
        ]
    })
}

/// Two holds and their release.
pub fn reenter_and_release() -> Workload {
    Workload::new(|_| {
        let reenter = |holds| Step::new(&["LOCK.REENTER", "door", OWNER, "PX", LEASE_MS], Reply::Int(holds));
        let release = |holds| Step::new(&["LOCK.RELEASE", "door", OWNER], Reply::Int(holds));
        vec![reenter(1), reenter(2), release(1), release(0)]
    })
}

/// The same as Redisson does it. Each unlock has a request id of its own and leaves a latch by that name, which the
/// client then deletes.
pub fn redisson() -> Workload {
    let [lock, unlock] = [REDISSON_LOCK, REDISSON_UNLOCK].map(|script| script.sha1());
    loaded(Workload::new(move |number| {
        let lock = Step::new(&["EVALSHA", &lock, "1", "door", LEASE_MS, OWNER], Reply::Nil);
        let latches = [0, 1].map(|turn| latch("door", &token(2 * number + turn)));
        let unlock = |latch: &str, done| {
            let keys = ["EVALSHA", &unlock, "3", "door", &channel("door"), latch];
            let args = [UNLOCK_MESSAGE, LEASE_MS, OWNER, PUBLISH, LATCH_MS];
            Step::new(&[&keys[..], &args].concat(), Reply::Int(done))
        };
        let delete = |latch: &str| Step::new(&["DEL", latch], Reply::Int(1));
        let [first, second] = &latches;
        vec![lock.clone(), lock, unlock(first, 0), delete(first), unlock(second, 1), delete(second)]
    }))
}

/// How many keys are to be there for one to be deleted in each cycle: some remain, so that the server's table is not shrunk,
/// and they are just short of a power of two, so that it is not still being moved to a larger one.
pub fn many(cycles: u64) -> u64 {
    (2 * cycles).next_power_of_two() - 1
}

/// What deleting such a latch costs by itself: `cycles` of them are there beforehand.
pub fn latch_deletion(cycles: u64) -> Workload {
    let latch = |number: u64| latch("door", &token(number));
    let set = move |number| Step::new(&["SET", &latch(number), "0", "PX", "600000"], ok());
    Workload::new(move |number| vec![Step::new(&["DEL", &latch(number)], Reply::Int(1))])
        .prepared_by((0..many(cycles)).map(set).collect())
}
