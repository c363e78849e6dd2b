//! Locks that no request touches while capacity becomes free for another reason, so the module has to notice it by
//! itself.

use std::time::{Duration, Instant};

use support::Reply;

use crate::evidence::starved;
use crate::link::{Link, PATIENCE};
use crate::run::Run;

const CHECK: &str = "quiet locks";
/// The longest time for the reply on a server that does not stall.
const SLACK: Duration = Duration::from_millis(250);
/// Longer than any wait here.
const LEASE_MS: u64 = 3000;
const BLOCK_MS: u64 = 2500;

/// What frees capacity: holders, a waiter that will not be granted the lock, the next waiter, and the command, which
/// comes without one when the first waiter closes its connection. K is the key, a to d are tokens.
type Cause = (&'static [&'static str], &'static str, &'static str, &'static str);

const ONE: &[&str] = &["LOCK.SHARE K a PX 3000 LIMIT 2"];
const TWO: &[&str] = &["LOCK.SHARE K a PX 3000 LIMIT 2", "LOCK.SHARE K b PX 3000 LIMIT 2"];
const WRITER: &str = "LOCK.ACQUIRE K c PX 50 BLOCK 2500";
const READER: &str = "LOCK.SHARE K d PX 50 LIMIT 2 BLOCK 2500";
const CAUSES: [Cause; 6] = [
    (TWO, "", READER, "ZREM K a"),
    (TWO, "", READER, "ZPOPMAX K"),
    (TWO, "", READER, "ZREMRANGEBYRANK K 0 0"),
    (ONE, WRITER, READER, "LOCK.RELEASE K c"),
    (ONE, WRITER, READER, ""),
    // It cannot be notified any more.
    (
        &["LOCK.ACQUIRE K a PX 3000"],
        "LOCK.ACQUIRE K c PX 3000 BLOCK 2500 NOTIFY quietK",
        "LOCK.ACQUIRE K d PX 50 BLOCK 2500",
        "LOCK.RELEASE K a",
    ),
];

/// Plays one cause after the other until the run is over.
pub fn run_quiet_locks(run: &Run, mut random: fastrand::Rng) {
    for number in 0_u32.. {
        run.rest(Duration::from_millis(random.u64(20..300)));
        if !run.goes_on() {
            return;
        }
        play(run, number, CAUSES[random.usize(..CAUSES.len())]);
    }
}

/// Lets a request wait, frees capacity for it, and checks that it is granted; `None` if a connection was closed, or the
/// settings do not allow it.
fn play(run: &Run, number: u32, (holds, first, next, frees): Cause) -> Option<()> {
    let (begun, key, tokens) = (Instant::now(), format!("q{number}"), [(); 4].map(|()| run.tokens.fresh().to_string()));
    let word = |word: &str| match word {
        "K" => key.clone(),
        "quietK" => format!("quiet{key}"),
        "a" | "b" | "c" | "d" => tokens[usize::from(word.as_bytes()[0] - b'a')].clone(),
        word => word.to_owned(),
    };
    let line = |text: &str| text.split(' ').map(word).collect::<Vec<_>>().join(" ");
    let connect = || run.connect(0, false);
    let (mut holder, mut other, mut waiter, mut listener) = (connect()?, connect()?, connect()?, connect()?);
    run.allows_lease(LEASE_MS, begun).then_some(())?;
    run.counters.begin(CHECK);
    listener.run(&format!("SSUBSCRIBE quiet{key}"));
    holds.iter().all(|hold| holder.run(&line(hold)) == 1).then_some(())?;
    if !first.is_empty() {
        other.send(&[line(first)])?;
        has_waiters(run, &mut holder, &key, 1)?;
    }
    waiter.send(&[line(next)])?;
    has_waiters(run, &mut holder, &key, 1 + i64::from(!first.is_empty()))?;
    (listener.run(&format!("SUNSUBSCRIBE quiet{key}")) != Reply::Closed).then_some(())?;
    if frees.is_empty() {
        drop(other);
    } else {
        (holder.run(&line(frees)) != Reply::Closed).then_some(())?;
    }
    let (freed, starved_before) = (Instant::now(), starved());
    let reply = waiter.receive(PATIENCE)?;
    let (received, evidence) = (Instant::now(), &run.evidence);
    let is_changed = evidence.flushes.any_since(begun) || evidence.changes.any_since(begun);
    let is_disturbed = is_changed || evidence.may_suspend(begun, received) || run.is_refusal(&reply);
    (reply != Reply::Closed && !is_disturbed).then(|| run.counters.count(CHECK))?;
    let took = received - freed;
    let stalled = evidence.stalls.between(freed, received) + starved().saturating_sub(starved_before);
    // The time of its BLOCK can be up when the server goes on.
    let is_explained = reply == 1 || (reply == Reply::Nil && took > SLACK);
    if !is_explained || took > SLACK + stalled {
        let text = format!("{key}, {frees:?}: the reply is {reply:?} after {took:?}, stalls explain {stalled:?}");
        run.fails("capacity of a lock is noticed within 250 ms", text);
    }
    holder.run(&format!("DEL {key}"));
    Some(())
}

/// Waits until this many requests wait. `None` if that takes too long for the rest.
fn has_waiters(run: &Run, link: &mut Link, key: &str, waiters: i64) -> Option<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(BLOCK_MS / 2) {
        if link.has_waiters(key, waiters) {
            return Some(());
        }
        run.rest(Duration::from_millis(1));
    }
    None
}
