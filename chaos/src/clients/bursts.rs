//! Many locks whose short leases end together, each with several waiters: no request releases them or asks for their
//! state, so the module alone has to hand them over, all in the same few milliseconds.

use std::time::{Duration, Instant};

use support::Reply;

use crate::evidence::{is_put_off, since_now};
use crate::link::Link;
use crate::run::Run;

const WAITERS: usize = 3;
const BLOCK_MS: u64 = 6000;
/// Of four locks this one has a share that is held for longer than the others wait.
const KEPT: usize = 3;
const KEPT_MS: u64 = 2000;
/// The longest time of all hand-overs of a lock beyond its leases, with the time of this program to read the replies.
const SLACK: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(30);

pub fn burst_forever(run: &Run, mut random: fastrand::Rng) {
    let mut crowd = Vec::new();
    for number in 0_u32.. {
        run.rest(Duration::from_millis(random.u64(500..3000)));
        if !run.goes_on() {
            return;
        }
        if burst(run, &mut random, &mut crowd, number).is_none() {
            crowd.clear();
        }
    }
}

/// Makes one burst, in a database of strict keys; `None` if a fault has disturbed it. The first connection holds.
fn burst(run: &Run, random: &mut fastrand::Rng, crowd: &mut Vec<Link>, number: u32) -> Option<()> {
    let locks = random.usize(20..100);
    while crowd.len() < 1 + locks * WAITERS {
        crowd.push(run.connect(1, false)?);
    }
    let (holder, waiters) = crowd.split_first_mut()?;
    let waiters = &mut waiters[..locks * WAITERS];
    let lease = random.u64(5..=25);
    let first = |lock: usize| request(run, number, lock, if lock % 4 == KEPT { KEPT_MS } else { lease });
    holder.send(&(0..locks).map(first).collect::<Vec<_>>())?;
    for (at, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[format!("{} BLOCK {BLOCK_MS}", request(run, number, at % locks, lease))])?;
    }
    let sent = since_now();
    run.counters.add("requests", locks * (WAITERS + 1));
    run.counters.count("leases that end together");
    for _ in 0..locks {
        let reply = holder.receive(LIMIT).unwrap_or(Reply::Closed);
        // A waiter on another connection can come first.
        if reply != Reply::Nil && !is_put_off(&reply) {
            check(run, &reply)?;
        }
    }
    let leases = Duration::from_millis((WAITERS as u64 + 1) * (lease + 1));
    for (at, waiter) in waiters.iter_mut().enumerate() {
        let reply = waiter.receive(LIMIT).unwrap_or(Reply::Closed);
        (!run.evidence.may_suspend(sent.0, Instant::now())).then_some(())?;
        if let Some(late) = run.evidence.stalls.late(sent, leases + SLACK) {
            run.fails("the end of a lease is noticed", format!("b{number}.{}, {lease} ms: {late}", at % locks));
        }
        check(run, &reply)?;
    }
    Some(())
}

/// Every other lock has one permit, or two of which the first holder keeps one.
fn request(run: &Run, burst: u32, lock: usize, lease: u64) -> String {
    let (command, limit) = [("ACQUIRE", ""), ("SHARE", " LIMIT 1"), ("ACQUIRE", ""), ("SHARE", " LIMIT 2")][lock % 4];
    format!("LOCK.{command} b{burst}.{lock}{} {} PX {lease}{limit}", run.suffix(1), run.tokens.fresh())
}

/// Each waiter is granted the lock; `None` ends the burst, because a fault has closed connections.
fn check(run: &Run, reply: &Reply) -> Option<()> {
    // A clock that is set forward ends waits too.
    let is_excused = *reply == Reply::Nil && run.evidence.sets_clock;
    if *reply != 1 && *reply != Reply::Closed && !is_excused && !run.is_refusal(reply) {
        run.fails("every waiter is granted the lock", format!("the reply to a request of a burst is {reply:?}"));
    }
    (*reply == 1).then_some(())
}
