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

/// The connections at one lock. `other` withdraws from the queue, or cannot be notified.
struct Lock<'r> {
    run: &'r Run,
    key: String,
    holder: Link,
    other: Link,
    next: Link,
}

/// What has freed capacity, and when.
type Freed = (String, Instant);

/// Plays one cause after the other until the run is over.
pub fn run_quiet_locks(run: &Run, mut random: fastrand::Rng) {
    for number in 0_u32.. {
        run.rest(Duration::from_millis(random.u64(20..300)));
        if !run.goes_on() {
            return;
        }
        if let [Some(holder), Some(other), Some(next)] = [(); 3].map(|()| run.connect(0, false)) {
            Lock { run, key: format!("q{number}"), holder, other, next }.play(&mut random);
        }
    }
}

impl Lock<'_> {
    /// Lets a request wait, frees capacity for it, and checks that it is granted; `None` if a connection was closed, or
    /// the settings do not allow it.
    fn play(mut self, random: &mut fastrand::Rng) -> Option<()> {
        let (run, begun) = (self.run, Instant::now());
        run.allows_lease(LEASE_MS, begun).then_some(())?;
        run.counters.begin(CHECK);
        let (by, freed) = match random.u8(..3) {
            0 => self.remove_share(random)?,
            1 => self.withdraw_writer(random)?,
            _ => self.leave_listener()?,
        };
        let starved_before = starved();
        let reply = self.next.receive(PATIENCE)?;
        let (received, evidence) = (Instant::now(), &run.evidence);
        let is_changed = evidence.flushes.any_since(begun) || evidence.changes.any_since(begun);
        let is_disturbed = is_changed || evidence.may_suspend(begun, received) || run.is_refusal(&reply);
        (reply != Reply::Closed && !is_disturbed).then(|| run.counters.count(CHECK))?;
        let took = received - freed;
        let stalled = evidence.stalls.between(freed, received) + starved().saturating_sub(starved_before);
        // The time of its BLOCK can be up when the server goes on.
        let is_explained = reply == 1 || (reply == Reply::Nil && took > SLACK);
        if !is_explained || took > SLACK + stalled {
            let text = format!("{}, {by}: the reply is {reply:?} after {took:?}, stalls explain {stalled:?}", self.key);
            run.fails("capacity of a lock is noticed within 250 ms", text);
        }
        self.holder.run(&format!("DEL {}", self.key));
        Some(())
    }

    /// Another client removes one of two shares.
    fn remove_share(&mut self, random: &mut fastrand::Rng) -> Option<Freed> {
        let key = self.key.clone();
        let tokens = [self.run.tokens.fresh(), self.run.tokens.fresh()];
        for token in tokens {
            self.holds(&format!("LOCK.SHARE {key} {token} PX {LEASE_MS} LIMIT 2"))?;
        }
        self.wait("SHARE", " LIMIT 2", 1)?;
        let share = tokens[random.usize(..2)];
        let lines = [format!("ZREM {key} {share}"), format!("ZPOPMAX {key}"), format!("ZREMRANGEBYRANK {key} 0 0")];
        self.free(random.choice(lines)?)
    }

    /// A request for the lock alone, which waited between shares, withdraws.
    fn withdraw_writer(&mut self, random: &mut fastrand::Rng) -> Option<Freed> {
        let (key, writer) = (self.key.clone(), self.run.tokens.fresh());
        self.holds(&format!("LOCK.SHARE {key} {} PX {LEASE_MS} LIMIT 2", self.run.tokens.fresh()))?;
        self.other.send(&[format!("LOCK.ACQUIRE {key} {writer} PX 50 BLOCK {BLOCK_MS}")])?;
        self.has_waiters(1)?;
        self.wait("SHARE", " LIMIT 2", 2)?;
        if random.bool() {
            return self.free(format!("LOCK.RELEASE {key} {writer}"));
        }
        self.other = self.run.connect(0, false)?;
        Some(("the writer has closed its connection".to_owned(), Instant::now()))
    }

    /// The first waiter cannot be notified any more, so the lock is granted to the next one.
    fn leave_listener(&mut self) -> Option<Freed> {
        let (key, token, unheard) = (self.key.clone(), self.run.tokens.fresh(), self.run.tokens.fresh());
        let mut listener = self.run.connect(0, false)?;
        listener.run(&format!("SSUBSCRIBE quiet{key}"));
        self.holds(&format!("LOCK.ACQUIRE {key} {token} PX {LEASE_MS}"))?;
        let line = format!("LOCK.ACQUIRE {key} {unheard} PX {LEASE_MS} BLOCK {BLOCK_MS} NOTIFY quiet{key}");
        (self.other.run(&line) == Reply::waiting()).then_some(())?;
        self.wait("ACQUIRE", "", 2)?;
        (listener.run(&format!("SUNSUBSCRIBE quiet{key}")) != Reply::Closed).then_some(())?;
        self.free(format!("LOCK.RELEASE {key} {token}"))
    }

    fn holds(&mut self, line: &str) -> Option<()> {
        (self.holder.run(line) == 1).then_some(())
    }

    /// The next request waits behind the others.
    fn wait(&mut self, command: &str, limit: &str, waiters: i64) -> Option<()> {
        let (key, token) = (&self.key, self.run.tokens.fresh());
        self.next.send(&[format!("LOCK.{command} {key} {token} PX 50{limit} BLOCK {BLOCK_MS}")])?;
        self.has_waiters(waiters)
    }

    /// Waits until this many requests wait. `None` if that takes too long for the rest.
    fn has_waiters(&mut self, waiters: i64) -> Option<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(BLOCK_MS / 2) {
            if self.holder.has_waiters(&self.key, waiters) {
                return Some(());
            }
            self.run.rest(Duration::from_millis(1));
        }
        None
    }

    fn free(&mut self, line: String) -> Option<Freed> {
        (self.holder.run(&line) != Reply::Closed).then(|| (line, Instant::now()))
    }
}
