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

/// The connections at one lock.
struct Lock {
    key: String,
    holder: Link,
    /// Withdraws from the queue, or cannot be notified.
    other: Link,
    next: Link,
}

/// What has freed capacity, and when.
type Freed = (String, Instant);

/// Lets a request wait, and frees capacity for it. `None` if a connection was closed, or the settings do not allow it.
type Cause = fn(&mut Lock, &Run, &mut fastrand::Rng) -> Option<Freed>;

/// Plays one cause after the other until the run is over.
pub fn run_quiet_locks(run: &Run, mut random: fastrand::Rng) {
    let mut links: Option<[Link; 3]> = None;
    for number in 0_u32.. {
        run.rest(Duration::from_millis(random.u64(20..300)));
        if !run.goes_on() {
            return;
        }
        let cause = [Lock::share_is_removed, Lock::writer_withdraws, Lock::listener_leaves][random.usize(..3)];
        let connect = || run.connect(0, false);
        links = links
            .filter(|links| links.iter().all(|link| link.port() == run.nodes.port_of(0)))
            .or_else(|| Some([connect()?, connect()?, connect()?]));
        links = links.and_then(|[holder, other, next]| {
            Lock { key: format!("q{number}"), holder, other, next }.play(run, &mut random, cause)
        });
    }
}

impl Lock {
    /// Returns the connections if they are still open.
    fn play(mut self, run: &Run, random: &mut fastrand::Rng, cause: Cause) -> Option<[Link; 3]> {
        let (begun, epoch) = (Instant::now(), run.nodes.epoch());
        if !run.allows_lease(LEASE_MS, begun) {
            return Some([self.holder, self.other, self.next]);
        }
        run.counters.begin(CHECK);
        let (by, freed) = cause(&mut self, run, random)?;
        let starved_before = starved();
        let reply = self.next.receive(PATIENCE)?;
        let received = Instant::now();
        let is_disturbed = run.flushes.any_since(begun) || run.in_force.may_suspend(begun, received);
        if reply == Reply::Closed || run.is_refusal(&reply) || is_disturbed || run.nodes.has_changed_since(epoch) {
            return None;
        }
        run.counters.count(CHECK);
        let took = received - freed;
        let stalled = run.stalls.between(freed, received) + starved().saturating_sub(starved_before);
        // The time of its BLOCK can be up when the server goes on.
        let is_explained = reply == 1 || (reply == Reply::Nil && took > SLACK);
        if !is_explained || took > SLACK + stalled {
            let text = format!("{}, {by}: the reply is {reply:?} after {took:?}, stalls explain {stalled:?}", self.key);
            run.report("capacity of a lock is noticed within 250 ms", text);
        }
        self.holder.run(&format!("DEL {}", self.key));
        Some([self.holder, self.other, self.next])
    }

    /// Another client removes one of two shares.
    fn share_is_removed(&mut self, run: &Run, random: &mut fastrand::Rng) -> Option<Freed> {
        let key = self.key.clone();
        let tokens = [run.tokens.fresh(), run.tokens.fresh()];
        for token in tokens {
            self.holds(&format!("LOCK.SHARE {key} {token} PX {LEASE_MS} LIMIT 2"))?;
        }
        self.waits_for_a_share(run, 1)?;
        self.free(match random.u8(..3) {
            0 => format!("ZREM {key} {}", tokens[random.usize(..2)]),
            1 => format!("ZPOPMAX {key}"),
            _ => format!("ZREMRANGEBYRANK {key} 0 0"),
        })
    }

    /// A request for the lock alone, which waited between shares, withdraws.
    fn writer_withdraws(&mut self, run: &Run, random: &mut fastrand::Rng) -> Option<Freed> {
        let (key, writer) = (self.key.clone(), run.tokens.fresh());
        self.holds(&format!("LOCK.SHARE {key} {} PX {LEASE_MS} LIMIT 2", run.tokens.fresh()))?;
        self.other.send(&[format!("LOCK.ACQUIRE {key} {writer} PX 50 BLOCK {BLOCK_MS}")])?;
        self.has_waiters(run, 1)?;
        self.waits_for_a_share(run, 2)?;
        if random.bool() {
            let freed = self.free(format!("LOCK.RELEASE {key} {writer}"))?;
            (self.other.receive(PATIENCE)? == Reply::Nil).then_some(freed)
        } else {
            self.other = run.connect(0, false)?;
            Some(("the writer has closed its connection".to_owned(), Instant::now()))
        }
    }

    /// The first waiter cannot be notified any more, so the lock is granted to the next one.
    fn listener_leaves(&mut self, run: &Run, _: &mut fastrand::Rng) -> Option<Freed> {
        let (key, token) = (self.key.clone(), run.tokens.fresh());
        let channel = format!("quiet{key}");
        let mut listener = run.connect(0, false)?;
        listener.run(&format!("SSUBSCRIBE {channel}"));
        self.holds(&format!("LOCK.ACQUIRE {key} {token} PX {LEASE_MS}"))?;
        let unheard = run.tokens.fresh();
        let line = format!("LOCK.ACQUIRE {key} {unheard} PX {LEASE_MS} BLOCK {BLOCK_MS} NOTIFY {channel}");
        (self.other.run(&line) == Reply::waiting()).then_some(())?;
        self.next.send(&[format!("LOCK.ACQUIRE {key} {} PX 50 BLOCK {BLOCK_MS}", run.tokens.fresh())])?;
        self.has_waiters(run, 2)?;
        (listener.run(&format!("SUNSUBSCRIBE {channel}")) != Reply::Closed).then_some(())?;
        self.free(format!("LOCK.RELEASE {key} {token}"))
    }

    fn holds(&mut self, line: &str) -> Option<()> {
        (self.holder.run(line) == 1).then_some(())
    }

    fn waits_for_a_share(&mut self, run: &Run, waiters: i64) -> Option<()> {
        let token = run.tokens.fresh();
        self.next.send(&[format!("LOCK.SHARE {} {token} PX 50 LIMIT 2 BLOCK {BLOCK_MS}", self.key)])?;
        self.has_waiters(run, waiters)
    }

    /// Waits until this many requests wait. `None` if that takes too long for the rest.
    fn has_waiters(&mut self, run: &Run, waiters: i64) -> Option<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(BLOCK_MS / 2) {
            if self.holder.has_waiters(&self.key, waiters) {
                return Some(());
            }
            run.rest(Duration::from_millis(1));
        }
        None
    }

    fn free(&mut self, line: String) -> Option<Freed> {
        (self.holder.run(&line) != Reply::Closed).then(|| (line, Instant::now()))
    }
}
