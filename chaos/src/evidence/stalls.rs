//! When a server stalled, because of a fault or a busy machine. Promises about time are checked against the time
//! without stalls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use crate::history::locked;
use crate::run::Run;

/// After a stall of a second the module suspends all grants for about a second. A stall is measured from outside, so it
/// can look a little shorter here.
const LONG: Duration = Duration::from_millis(900);
const AFTER_A_LONG_ONE: Duration = Duration::from_millis(1500);
/// How long stalls are kept. Far longer than any wait that is measured.
const MEMORY: Duration = Duration::from_secs(120);
/// The time between two probes.
const EVERY: Duration = Duration::from_millis(5);
/// The longest time for a reply that is no stall.
const SOON: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
struct Stall {
    from: Instant,
    until: Instant,
}

#[derive(Default)]
struct Log {
    stalls: VecDeque<Stall>,
    /// When the probe of each database was sent, as long as it has no reply.
    probes: BTreeMap<u32, Instant>,
    /// The beginning of a fault that goes on.
    fault: Option<Instant>,
}

impl Log {
    fn add(&mut self, from: Instant, until: Instant) {
        while self.stalls.front().is_some_and(|first| first.until + MEMORY < from) {
            self.stalls.pop_front();
        }
        self.stalls.push_back(Stall { from, until });
    }
}

#[derive(Default)]
pub struct StallLog(Mutex<Log>);

impl StallLog {
    /// The server stalled, or may have, for all of this time.
    pub fn add(&self, from: Instant, until: Instant) {
        locked(&self.0).add(from, until);
    }

    /// Runs a fault, during which the server counts as stalled.
    pub fn during<T>(&self, fault: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        locked(&self.0).fault = Some(from);
        let result = fault();
        let mut log = locked(&self.0);
        log.fault = None;
        log.add(from, Instant::now());
        result
    }

    /// A probe is sent at this time; until [`StallLog::answered`] the server counts as stalled.
    fn probe(&self, database: u32, sent: Instant) {
        locked(&self.0).probes.insert(database, sent);
    }

    /// The reply to the probe was read. `took` is the time that it took, if that is a stall.
    fn answered(&self, database: u32, took: Option<Duration>) {
        let mut log = locked(&self.0);
        if let (Some(from), Some(took)) = (log.probes.remove(&database), took) {
            log.add(from, from + took);
        }
    }

    /// Returns how much of this time the server stalled, with the time in which the module then suspends grants.
    pub fn between(&self, from: Instant, until: Instant) -> Duration {
        let log = locked(&self.0);
        let open = log.probes.values().copied().chain(log.fault);
        let open = open.map(|begun| Stall { from: begun, until: until.max(begun) });
        covered(log.stalls.iter().copied().chain(open).collect(), from, until)
    }
}

/// Returns how much of a span the stalls cover. Stalls that touch are one stall.
fn covered(mut stalls: Vec<Stall>, from: Instant, until: Instant) -> Duration {
    stalls.sort_by_key(|stall| stall.from);
    let mut joined: Vec<Stall> = Vec::new();
    for stall in stalls {
        match joined.last_mut() {
            Some(last) if stall.from <= last.until => last.until = last.until.max(stall.until),
            _ => joined.push(stall),
        }
    }
    let mut total = Duration::ZERO;
    let mut counted = from;
    let mut resumed: Option<Instant> = None;
    for stall in joined {
        let length = stall.until - stall.from;
        // A stall while grants are suspended lengthens the suspension.
        resumed = match resumed.filter(|at| *at > stall.from) {
            _ if length >= LONG => Some(stall.until + AFTER_A_LONG_ONE),
            Some(at) => Some(at + length),
            None => None,
        };
        let end = resumed.unwrap_or(stall.until).max(stall.until);
        let (begin, end) = (stall.from.max(counted), end.min(until));
        if end > begin {
            total += end - begin;
            counted = end;
        }
    }
    total
}

/// Sends a PING every few milliseconds and logs the stalls of the server with this database, until `done`.
pub fn probe_latency(run: &Run, database: u32, done: impl Fn() -> bool) {
    let mut link = None;
    // A probe whose connection is killed has measured nothing yet.
    let mut unanswered = None;
    while !done() && !run.is_over() {
        let sent = *unanswered.get_or_insert_with(Instant::now);
        run.stalls.probe(database, sent);
        let open = run.current(link.take()).or_else(|| run.connect(database, false));
        link = open.and_then(|mut link| (link.run("PING") != Reply::Closed).then_some(link));
        if link.is_none() {
            continue;
        }
        let took = sent.elapsed();
        run.stalls.answered(database, (took > SOON).then_some(took));
        unanswered = None;
        let begun = Instant::now();
        // If this thread oversleeps, other threads ask before it can log that.
        run.stalls.probe(database, begun + EVERY + SOON);
        sleep(EVERY);
        // A thread that oversleeps has no processor, and the server may have none either.
        let now = Instant::now();
        if now - begun > EVERY + SOON {
            run.stalls.add(begun, now);
        }
    }
}

/// Returns how long this thread has been ready to run without a processor since it began (see proc_pid_schedstat(5));
/// zero where the kernel does not say.
pub fn starved() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(stalls: &[(u64, u64)], from: u64, until: u64) -> u64 {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let log = StallLog::default();
        stalls.iter().for_each(|&(from, until)| log.add(at(from), at(until)));
        u64::try_from(log.between(at(from), at(until)).as_millis()).expect("a short time")
    }

    #[test]
    fn stalls_count_once_within_the_span() {
        assert_eq!(between(&[(10, 20), (15, 30), (50, 60)], 0, 100), 30);
        assert_eq!(between(&[(10, 20), (15, 30)], 12, 18), 6);
        assert_eq!(between(&[(10, 20)], 20, 90), 0);
    }

    #[test]
    fn long_stall_counts_for_some_time_after_it() {
        assert_eq!(between(&[(0, 1000)], 0, 10_000), 2500);
        assert_eq!(between(&[(0, 1000), (2000, 2200)], 1000, 10_000), 1700);
        assert_eq!(between(&[(0, 1000), (2600, 2800)], 1000, 10_000), 1700);
        assert_eq!(between(&[(0, 500), (500, 1000)], 0, 10_000), 2500);
    }

    #[test]
    fn fault_is_a_stall_from_its_beginning() {
        let (log, begun) = (StallLog::default(), Instant::now());
        let during = log.during(|| log.between(begun, begun + Duration::from_secs(1)));
        assert!(during > Duration::from_millis(500), "{during:?}");
        assert!(log.between(begun, begun + Duration::from_secs(1)) < Duration::from_millis(500));
    }

    #[test]
    fn old_stalls_are_forgotten() {
        let (log, start) = (StallLog::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..1000).for_each(|second| log.add(at(second), at(second + 1)));
        assert!(locked(&log.0).stalls.len() < 130);
        assert_eq!(log.between(at(990), at(999)), Duration::from_secs(9));
    }

    #[test]
    fn probe_without_a_reply_is_a_stall() {
        let (log, start) = (StallLog::default(), Instant::now());
        log.probe(0, start);
        let later = start + Duration::from_millis(40);
        assert_eq!(log.between(start, later), Duration::from_millis(40));
        log.answered(0, None);
        assert_eq!(log.between(start, later), Duration::ZERO);
    }
}
