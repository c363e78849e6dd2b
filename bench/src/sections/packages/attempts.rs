//! What the attempts of all clients say: who waited how long, who was favoured, whether two ever held the lock at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::str::FromStr;

/// One try of a client to take the lock. Times are nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub begun: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// From when the client knew of the grant until just before it sent the release, so never longer than in the server.
    Held {
        granted: u64,
        released: u64,
    },
    GaveUp,
}

impl Attempt {
    pub fn held(&self) -> Option<Range<u64>> {
        match self.outcome {
            Outcome::Held { granted, released } => Some(granted..released),
            Outcome::GaveUp => None,
        }
    }
}

impl FromStr for Attempt {
    type Err = ();

    /// `held BEGUN GRANTED RELEASED` or `gave-up BEGUN`.
    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split(' ');
        let kind = words.next();
        let times: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().map_err(drop)?;
        match (kind, times.as_slice()) {
            (Some("held"), &[begun, granted, released]) => {
                Ok(Self { begun, outcome: Outcome::Held { granted, released } })
            }
            (Some("gave-up"), &[begun]) => Ok(Self { begun, outcome: Outcome::GaveUp }),
            _ => Err(()),
        }
    }
}

/// The attempts of each client, in the order in which it made them.
pub type Attempts = [Vec<Attempt>];

/// For each release in `window` for which somebody waited: how long it took until one of those who waited had the lock.
/// A client that takes the lock back before they notice does not end their wait.
pub fn release_to_grant(clients: &Attempts, window: &Range<u64>) -> Vec<u64> {
    let releases_of = |(number, client): (usize, &Vec<Attempt>)| {
        let held = client.iter().filter_map(Attempt::held);
        held.map(|held| (number, held.end)).collect::<Vec<_>>()
    };
    let releases = clients.iter().enumerate().flat_map(releases_of).filter(|(_, at)| window.contains(at));
    releases.filter_map(|(number, at)| Some(first_grant(clients, number, at)? - at)).collect()
}

/// The first grant after `at` to a client other than `releaser` that was waiting then.
fn first_grant(clients: &Attempts, releaser: usize, at: u64) -> Option<u64> {
    let others = clients.iter().enumerate().filter(|&(number, _)| number != releaser).map(|(_, client)| client);
    let pending = others.filter_map(|client| client[..client.partition_point(|attempt| attempt.begun < at)].last());
    pending.filter_map(Attempt::held).map(|held| held.start).filter(|&granted| granted > at).min()
}

/// How often each client was granted the lock in `window`.
pub fn grants(clients: &Attempts, window: &Range<u64>) -> Vec<u64> {
    let count = |client: &Vec<Attempt>| {
        let held = client.iter().filter_map(Attempt::held);
        held.map(|held| u64::from(window.contains(&held.start))).sum()
    };
    clients.iter().map(count).collect()
}

/// How often the lock was granted while as many as may hold it still held it.
pub fn overlaps(clients: &Attempts, most: usize) -> usize {
    let mut holds: Vec<Range<u64>> = clients.iter().flatten().filter_map(Attempt::held).collect();
    holds.sort_unstable_by_key(|held| held.start);
    let mut releases = BinaryHeap::new();
    let mut overlaps = 0;
    for held in holds {
        while releases.peek().is_some_and(|&Reverse(release)| release <= held.start) {
            releases.pop();
        }
        releases.push(Reverse(held.end));
        overlaps += usize::from(releases.len() > most);
    }
    overlaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(lines: &[&str]) -> Vec<Attempt> {
        lines.iter().map(|line| line.parse().expect("an attempt")).collect()
    }

    #[test]
    fn a_lock_taken_back_is_no_grant_to_who_waited() {
        let clients = [
            client(&["held 0 1 10", "held 11 12 20", "held 21 41 50"]),
            client(&["held 5 25 40"]),
            client(&["gave-up 6", "held 45 60 70"]),
        ];
        assert_eq!(release_to_grant(&clients, &(0..100)), [15, 5, 10, 1]);
        assert_eq!(release_to_grant(&clients, &(0..20)), [15]);
    }

    #[test]
    fn a_release_nobody_waits_for_counts_for_nothing() {
        let clients = [client(&["held 0 1 10"]), client(&["held 11 12 20"])];
        assert_eq!(release_to_grant(&clients, &(0..100)), [] as [u64; 0]);
    }

    #[test]
    fn too_many_holders_are_seen() {
        assert_eq!(overlaps(&[client(&["held 0 1 10", "held 10 12 20"]), client(&["held 0 11 12"])], 1), 0);
        let clients = [client(&["held 0 1 10"]), client(&["held 0 2 3", "held 4 5 11"])];
        assert_eq!(overlaps(&clients, 1), 2);
        assert_eq!(overlaps(&clients, 2), 0);
        assert_eq!(overlaps(&[&clients[..], &[client(&["held 0 6 7"])]].concat(), 2), 1);
    }

    #[test]
    fn a_line_of_another_form_is_no_attempt() {
        for line in ["", "held 1 2", "gave-up", "gave-up 1 2", "held 1 2 x", "done"] {
            assert_eq!(line.parse::<Attempt>(), Err(()), "{line:?}");
        }
    }
}
