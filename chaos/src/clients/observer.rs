//! An observer of one lock after the other: no request waits for a lock that is free, or that has capacity for the
//! share that it asks for. The queues that it sees are a part of the history.

use std::time::{Duration, Instant};

use support::Reply;

use crate::evidence::since_now;
use crate::keys::Key;
use crate::link::{Link, PATIENCE};
use crate::run::Run;
use crate::token::Token;

/// The longest time for which a lock looks free to the first waiter, on a server that does not stall.
const BOUND: Duration = Duration::from_millis(100);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

pub fn observe(run: &Run, mut random: fastrand::Rng) {
    let mut links: [Option<Link>; 4] = Default::default();
    while run.goes_on() {
        let key = run.keys.any(&mut random);
        let slot = &mut links[key.database as usize];
        if let Some(mut link) = run.current(slot.take()).or_else(|| run.connect(key.database, false)) {
            let names = if random.bool() { Vec::new() } else { link.contended() };
            let contended = random.choice(names).and_then(|name| run.keys.named(key.database, &name));
            let key = contended.unwrap_or(key);
            *slot = (!key.is_observed() || examine(run, key, &mut link).is_some()).then_some(link);
        }
        run.rest(BETWEEN_LOOKS);
    }
}

/// Observes a lock until it is not free, or has no waiters, or another is the first waiter. `None` if the connection is
/// closed.
fn examine(run: &Run, key: &Key, link: &mut Link) -> Option<()> {
    let (sent, mut is_free, queue) = look(key, link)?;
    let (since, first) = (since_now(), queue.first().copied());
    run.saw_queue(key, sent, queue);
    // As long as the same token is the first waiter, no waiter was granted the lock: waiters do not overtake.
    while is_free && first.is_some() {
        run.rest(BETWEEN_LOOKS);
        let (_, still_free, queue) = look(key, link)?;
        is_free = still_free && queue.first().copied() == first;
        if let Some(late) = run.evidence.stalls.late(since, BOUND).filter(|_| is_free) {
            let text = format!("these waited for a free lock: {queue:?}; {late}");
            run.report(key.database, &key.name, "no request waits for a free lock", &text);
            return Some(());
        }
    }
    Some(())
}

/// Returns when it asked for the state of a lock, whether the first waiter could have it, and the queue.
fn look(key: &Key, link: &mut Link) -> Option<(Instant, bool, Vec<Token>)> {
    let sent = link.send(&[format!("LOCK.INFO {}", key.name), format!("LOCK.WAITERS {}", key.name)])?;
    let (info, waiters) = (link.receive(PATIENCE)?, link.receive(PATIENCE)?);
    if info == Reply::Closed || waiters == Reply::Closed {
        return None;
    }
    let waiters = if let Reply::List(waiters) = waiters { waiters } else { Vec::new() };
    let is_free = waiters.first().is_some_and(|first| has_capacity(&info, first));
    let queue = waiters.iter().filter_map(|waiter| Token::read(waiter.get("token").bytes())).collect();
    Some((sent, is_free, queue))
}

/// Whether this waiter could have a lock with this LOCK.INFO. A key that is no lock has no capacity.
fn has_capacity(info: &Reply, waiter: &Reply) -> bool {
    if info.is_error() || info.get("recovery-ms") != 0 {
        return false;
    }
    let limit = waiter.get("limit").int();
    let fits = || waiter.get("kind") == "shared" && (limit == 0 || info.get("holds").int() < limit);
    info.get("state") == "free" || (info.get("state") == "shared" && fits())
}

#[test]
fn lock_has_capacity_up_to_the_limit() {
    let map = |pairs: &[(&str, Reply)]| {
        Reply::List(pairs.iter().flat_map(|(name, value)| [Reply::text(name), value.clone()]).collect())
    };
    let fits = |recovery_ms, state, holds, kind, limit| {
        let info =
            [("state", Reply::text(state)), ("holds", Reply::Int(holds)), ("recovery-ms", Reply::Int(recovery_ms))];
        has_capacity(&map(&info), &map(&[("kind", Reply::text(kind)), ("limit", Reply::Int(limit))]))
    };
    assert!(fits(0, "shared", 1, "shared", 2) && !fits(0, "shared", 2, "shared", 2));
    assert!(fits(0, "shared", 200, "shared", 0) && !fits(0, "shared", 1, "mutex", 0));
    assert!(fits(0, "free", 0, "mutex", 0) && !fits(0, "mutex", 1, "shared", 2));
    assert!(!fits(1, "free", 0, "mutex", 0), "in a recovery period");
}
