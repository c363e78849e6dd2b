//! What the attempts of all clients show: the waits, the fairness, and whether too many clients held a lock together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use crate::statistics::Durations;

/// An attempt of a client to acquire a lock. Times are nanoseconds of one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub client: usize,
    pub lock: usize,
    pub begun: u64,
    /// From the client's knowledge of the grant until just before its release, so never longer than in the server. None if the
    /// client gave up.
    pub held: Option<Range<u64>>,
}

impl FromStr for Attempt {
    type Err = ();

    /// `CLIENT LOCK BEGUN GRANTED RELEASED`, or `CLIENT LOCK BEGUN` of a client that gave up.
    fn from_str(line: &str) -> Result<Self, ()> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(drop)?;
        let (names, begun, held) = match *numbers.as_slice() {
            [client, lock, begun] => ([client, lock], begun, None),
            [client, lock, begun, granted, released] => ([client, lock], begun, Some(granted..released)),
            _ => return Err(()),
        };
        let [client, lock] = names.map(|number| usize::try_from(number).expect("a small number"));
        Ok(Self { client, lock, begun, held })
    }
}

/// The time of each acquisition that began in `window`.
pub fn acquire_times(attempts: &[Attempt], window: &Range<u64>, times: &mut Durations) {
    let began = attempts.iter().filter(|attempt| window.contains(&attempt.begun));
    for (attempt, held) in began.filter_map(|attempt| Some((attempt, attempt.held.as_ref()?))) {
        times.record(Duration::from_nanos(held.start - attempt.begun));
    }
}

/// For each release of the one lock in `window` while another client waited: the time until one of those that waited had the lock.
/// A client that takes the lock back does not end their wait.
pub fn release_to_grant(attempts: &[Attempt], window: &Range<u64>, times: &mut Durations) {
    let mut clients = BTreeMap::<usize, Vec<&Attempt>>::new();
    attempts.iter().for_each(|attempt| clients.entry(attempt.client).or_default().push(attempt));
    let holds = attempts.iter().filter_map(|attempt| Some((attempt.client, attempt.held.as_ref()?.end)));
    for (releaser, at) in holds.filter(|(_, at)| window.contains(at)) {
        let others = clients.iter().filter(|(client, _)| **client != releaser);
        let pending = others.filter_map(|(_, all)| all[..all.partition_point(|attempt| attempt.begun < at)].last());
        let granted = pending.filter_map(|attempt| Some(attempt.held.as_ref()?.start)).filter(|&granted| granted > at);
        if let Some(granted) = granted.min() {
            times.record(Duration::from_nanos(granted - at));
        }
    }
}

/// The number of grants in `window` to each of that number of clients.
pub fn grants(attempts: &[Attempt], clients: usize, window: &Range<u64>) -> Vec<u64> {
    let mut grants = vec![0; clients];
    for attempt in attempts {
        grants[attempt.client] += u64::from(attempt.held.as_ref().is_some_and(|held| window.contains(&held.start)));
    }
    grants
}

pub fn gave_up(attempts: &[Attempt]) -> usize {
    attempts.iter().filter(|attempt| attempt.held.is_none()).count()
}

/// How often a lock was granted while `permits` clients held it.
pub fn overlaps(attempts: &[Attempt], permits: usize) -> usize {
    let mut holds = BTreeMap::<usize, Vec<&Range<u64>>>::new();
    for attempt in attempts {
        holds.entry(attempt.lock).or_default().extend(&attempt.held);
    }
    holds.into_values().map(|holds| overlaps_of_one(holds, permits)).sum()
}

fn overlaps_of_one(mut holds: Vec<&Range<u64>>, permits: usize) -> usize {
    holds.sort_unstable_by_key(|held| held.start);
    let (mut releases, mut overlaps) = (BinaryHeap::new(), 0);
    for held in holds {
        while releases.peek().is_some_and(|&Reverse(release)| release <= held.start) {
            releases.pop();
        }
        releases.push(Reverse(held.end));
        overlaps += usize::from(releases.len() > permits);
    }
    overlaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(lines: &[&str]) -> Vec<Attempt> {
        lines.iter().map(|line| line.parse().expect("an attempt")).collect()
    }

    fn longest_ns(attempts: &[Attempt], window: Range<u64>) -> Option<f64> {
        let mut times = Durations::new();
        release_to_grant(attempts, &window, &mut times);
        times.quantile_ms(1.0).map(|ms| (ms * 1e6).round())
    }

    #[test]
    fn lock_taken_back_is_no_grant_to_a_waiter() {
        let all = attempts(&["0 0 0 1 10", "0 0 11 12 20", "0 0 21 41 50", "1 0 5 25 40", "2 0 6", "2 0 45 60 70"]);
        assert_eq!(longest_ns(&all, 0..20), Some(15.0));
        assert_eq!(longest_ns(&all, 20..45), Some(5.0));
    }

    #[test]
    fn release_without_waiter_is_not_counted() {
        assert_eq!(longest_ns(&attempts(&["0 0 0 1 10", "1 0 11 12 20"]), 0..100), None);
    }

    #[test]
    fn too_many_holders_of_one_lock_are_counted() {
        assert_eq!(overlaps(&attempts(&["0 0 0 1 10", "0 0 10 12 20", "1 0 0 11 12", "2 1 0 1 20"]), 1), 0);
        let mut all = attempts(&["0 0 0 1 10", "1 0 0 2 3", "1 0 4 5 11"]);
        assert_eq!((overlaps(&all, 1), overlaps(&all, 2)), (2, 0));
        all.extend(attempts(&["2 0 0 6 7"]));
        assert_eq!(overlaps(&all, 2), 1);
    }

    #[test]
    fn grants_and_failures_are_counted_by_client() {
        let all = attempts(&["0 0 0 1 10", "0 0 11 12 20", "1 0 5", "1 0 6 30 31"]);
        assert_eq!((grants(&all, 3, &(0..20)), gave_up(&all)), (vec![2, 0, 0], 1));
    }

    #[test]
    fn line_of_another_form_is_no_attempt() {
        for line in ["", "1 2", "1 2 3 4", "1 2 3 4 x", "done"] {
            assert_eq!(line.parse::<Attempt>(), Err(()), "{line:?}");
        }
    }
}
