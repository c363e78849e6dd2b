//! When a server stalled, because of a fault or a busy machine.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use crate::history::locked;
use crate::run::Run;

/// After a stall of a second the module suspends all grants for about a second, and longer if it stalls again. A stall is measured from outside, so it
/// can look a little shorter here.
const LONG: Duration = Duration::from_millis(900);
const AFTER_A_LONG_ONE: Duration = Duration::from_millis(2000);
/// How long stalls are kept. Far longer than any wait that is measured.
const MEMORY: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_millis(5);
const SOON: Duration = Duration::from_millis(10);
/// A fault that goes on, among the probes, which have the numbers of their databases.
const FAULT: u32 = u32::MAX;

type Stall = (Instant, Instant);

/// A moment, and how long its thread had waited for a processor by then.
pub type Since = (Instant, Duration);

#[derive(Default)]
struct Log {
    stalls: VecDeque<Stall>,
    /// When the probe of each database was sent, as long as it has no reply, and when a fault began.
    open: BTreeMap<u32, Instant>,
}

#[derive(Default)]
pub struct StallLog(Mutex<Log>);

impl StallLog {
    pub fn add(&self, from: Instant, until: Instant) {
        let stalls = &mut locked(&self.0).stalls;
        while stalls.front().is_some_and(|first| first.1 + MEMORY < from) {
            stalls.pop_front();
        }
        stalls.push_back((from, until));
    }

    pub fn add_from_now(&self, length: Duration) {
        let now = Instant::now();
        self.add(now, now + length);
    }

    /// Runs a fault, during which the server counts as stalled.
    pub fn during<T>(&self, fault: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        self.begin(FAULT, from);
        let result = fault();
        self.add(from, Instant::now());
        locked(&self.0).open.remove(&FAULT);
        result
    }

    fn begin(&self, what: u32, from: Instant) {
        locked(&self.0).open.insert(what, from);
    }

    /// Returns how much of this time the server stalled, with the time in which the module then suspends grants.
    pub fn between(&self, from: Instant, until: Instant) -> Duration {
        let log = locked(&self.0);
        let open = log.open.values().map(|begun| (*begun, until.max(*begun)));
        covered(log.stalls.iter().copied().chain(open).collect(), from, until)
    }

    /// Returns, in words, by how much this thread has waited longer than the limit, apart from the time that stalls
    /// explain.
    pub fn late(&self, (since, starved_before): Since, limit: Duration) -> Option<String> {
        let now = Instant::now();
        let late = now.saturating_duration_since(since).checked_sub(limit)?;
        let explained = self.between(since, now) + starved().saturating_sub(starved_before);
        (late > explained).then(|| format!("{late:?} late, stalls explain {explained:?}"))
    }
}

/// Returns the moment, from which a promise about time counts for this thread.
pub fn since_now() -> Since {
    (Instant::now(), starved())
}

/// Returns how much of a span the stalls cover. Stalls that touch are one stall.
fn covered(mut stalls: Vec<Stall>, from: Instant, until: Instant) -> Duration {
    stalls.sort_by_key(|stall| stall.0);
    stalls.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        last.1 = if touches { last.1.max(next.1) } else { last.1 };
        touches
    });
    let (mut total, mut counted) = (Duration::ZERO, from);
    for (begin, end) in stalls {
        let after = if end - begin >= LONG { AFTER_A_LONG_ONE } else { Duration::ZERO };
        let (begin, end) = (begin.max(counted), (end + after).min(until));
        if end > begin {
            total += end - begin;
            counted = end;
        }
    }
    total
}

/// Sends a PING every few milliseconds and logs the stalls of the server with this database, until `done`.
pub fn probe_latency(run: &Run, database: u32, done: impl Fn() -> bool) {
    let stalls = &run.evidence.stalls;
    let mut link = None;
    // A probe whose connection is killed has measured nothing yet.
    let mut unanswered = None;
    while !done() && !run.is_over() {
        let sent = *unanswered.get_or_insert_with(Instant::now);
        stalls.begin(database, sent);
        let open = run.current(link.take()).or_else(|| run.connect(database, false));
        link = open.and_then(|mut link| (link.run("PING") != Reply::Closed).then_some(link));
        if link.is_none() {
            continue;
        }
        let begun = Instant::now();
        if begun - sent > SOON {
            stalls.add(sent, begun);
        }
        unanswered = None;
        // If this thread oversleeps, other threads ask before it can log that.
        stalls.begin(database, begun + EVERY + SOON);
        sleep(EVERY);
        // A thread that oversleeps has no processor, and the server may have none either.
        let now = Instant::now();
        if now - begun > EVERY + SOON {
            stalls.add(begun, now);
        }
    }
}

/// Returns how long this thread has been ready to run without a processor since it began (see proc_pid_schedstat(5));
/// zero where the kernel does not say.
fn starved() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

#[test]
fn stalls_count_once_and_long_ones_for_some_time_after() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let between = |stalls: &[(u64, u64)], from, until| {
        let stalls = stalls.iter().map(|&(from, until)| (at(from), at(until))).collect();
        covered(stalls, at(from), at(until)).as_millis()
    };
    assert_eq!(between(&[(10, 20), (15, 30), (50, 60)], 0, 100), 30);
    assert_eq!(between(&[(10, 20), (15, 30)], 12, 18), 6);
    assert_eq!(between(&[(0, 1000), (2000, 2200)], 0, 10_000), 3000);
    assert_eq!(between(&[(0, 500), (500, 1000)], 0, 10_000), 3000);
}

#[test]
fn fault_and_probe_without_a_reply_are_stalls() {
    let (log, begun) = (StallLog::default(), Instant::now());
    let later = begun + Duration::from_secs(1);
    assert!(log.during(|| log.between(begun, later)) > Duration::from_millis(500));
    assert!(log.between(begun, later) < Duration::from_millis(500));
    log.begin(0, begun);
    assert_eq!(log.between(begun, later), Duration::from_secs(1));
}
