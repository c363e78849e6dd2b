//! The cycles of shares whose server work is counted: one is taken and given back, in each of the ways that are compared.

use support::Reply;

use super::cycles::{LEASE_MS, token};
use super::workload::{Step, Workload, ok};
use crate::protocols::permit_scripts::{REDIS_SEMAPHORE_ACQUIRE, REDISSON_PERMIT_ACQUIRE, REDISSON_PERMIT_RELEASE};
use crate::protocols::redisson::PUBLISH;
use crate::protocols::scripts::Script;

/// Permits of each semaphore.
const PERMITS: &str = "10";
/// What the clients take for the time, shortly before the server's own, and the end of a lease that begins then.
const NOW_MS: &str = "1800000000000";
const END_MS: &str = "1800000030000";

fn add(token: &str) -> Step {
    Step::new(&["ZADD", "door", END_MS, token], Reply::Int(1))
}

/// The effects of a share and its release, as somebody would write them by hand who is never refused.
pub fn zadd_and_zrem() -> Workload {
    Workload::new(|number| {
        let token = token(number);
        let expire = Step::new(&["PEXPIREAT", "door", END_MS], Reply::Int(1));
        vec![add(&token), expire, Step::new(&["ZREM", "door", &token], Reply::Int(1))]
    })
}

pub fn share_and_release() -> Workload {
    share_with(&[])
}

/// The same for a permit of a semaphore.
pub fn permit_and_release() -> Workload {
    share_with(&["LIMIT", PERMITS])
}

fn share_with(options: &'static [&'static str]) -> Workload {
    Workload::new(move |number| {
        let token = token(number);
        let share = [&["LOCK.SHARE", "door", &token, "PX", LEASE_MS], options].concat();
        vec![Step::new(&share, Reply::Int(1)), Step::new(&["LOCK.RELEASE", "door", &token], Reply::Int(0))]
    })
}

/// Beside so many shares that others hold all the time, in the layout that is common to this module and redis-semaphore.
pub fn beside_holders(workload: Workload, count: u64) -> Workload {
    let held = |number: u64| add(&format!("{number:032}"));
    let expire = Step::new(&["PEXPIREAT", "door", END_MS], Reply::Int(1));
    workload.prepared_by((0..count).map(held).chain([expire]).collect())
}

/// As redis-semaphore does it.
pub fn redis_semaphore() -> Workload {
    let acquire = REDIS_SEMAPHORE_ACQUIRE.sha1();
    let load = load(&REDIS_SEMAPHORE_ACQUIRE);
    Workload::new(move |number| {
        let token = token(number);
        let words = ["EVALSHA", &acquire, "1", "door", PERMITS, &token, LEASE_MS, NOW_MS];
        vec![Step::new(&words, Reply::Int(1)), Step::new(&["ZREM", "door", &token], Reply::Int(1))]
    })
    .prepared_by(vec![load])
}

/// As Redisson does it, in whose semaphore the number of permits left has a key of its own.
pub fn redisson_permit() -> Workload {
    let [acquire, release] = [REDISSON_PERMIT_ACQUIRE, REDISSON_PERMIT_RELEASE].map(|script| script.sha1());
    let (ends, channel) = ("{door}:timeout", "redisson_sc:{door}");
    let left = Step::new(&["SET", "door", PERMITS], ok());
    Workload::new(move |number| {
        let token = token(number);
        let acquire = ["EVALSHA", &acquire, "3", "door", ends, channel, END_MS, NOW_MS, &token, PUBLISH];
        let release = ["EVALSHA", &release, "3", "door", ends, channel, &token, NOW_MS, PUBLISH];
        vec![Step::new(&acquire, Reply::text("OK")), Step::new(&release, Reply::Int(1))]
    })
    .prepared_by(vec![load(&REDISSON_PERMIT_ACQUIRE), load(&REDISSON_PERMIT_RELEASE), left])
}

/// Scripts are loaded once, as every client library does.
fn load(script: &Script) -> Step {
    Step::new(&["SCRIPT", "LOAD", script.text], Reply::text(&script.sha1()))
}
