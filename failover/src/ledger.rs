//! Who believed to hold which lock from when to when, in one round.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The most shares that may be held of one lock.
pub const LIMIT: usize = 2;

/// A time in which a client believed that it held a lock.
#[derive(Clone, Debug)]
pub struct Belief {
    pub lock: usize,
    pub token: String,
    /// Whether others with shares may hold it, too.
    pub shares: bool,
    /// The node that granted it.
    pub node: usize,
    pub from: Instant,
    pub until: Instant,
    /// How the client came to hold it, and what it did then.
    pub story: String,
}

/// A grant, as soon as its client knows of it.
#[derive(Clone, Copy)]
pub struct Grant {
    pub node: usize,
    pub at: Instant,
}

#[derive(Default)]
pub struct Ledger {
    beliefs: Mutex<Vec<Belief>>,
    grants: Mutex<Vec<Grant>>,
}

impl Ledger {
    pub fn granted(&self, node: usize) {
        lock(&self.grants).push(Grant { node, at: Instant::now() });
    }

    pub fn believed(&self, belief: Belief) {
        lock(&self.beliefs).push(belief);
    }

    pub fn grants(&self) -> Vec<Grant> {
        lock(&self.grants).clone()
    }

    /// How many grants of a node came at `since` or later.
    pub fn count(&self, node: usize, since: Instant) -> usize {
        lock(&self.grants).iter().filter(|grant| grant.node == node && grant.at >= since).count()
    }

    /// Sets of beliefs that cannot all have been right, the last begun last.
    pub fn overlaps(&self) -> Vec<Vec<Belief>> {
        let mut of_lock: BTreeMap<usize, Vec<Belief>> = BTreeMap::new();
        for belief in lock(&self.beliefs).iter().filter(|belief| belief.from < belief.until) {
            of_lock.entry(belief.lock).or_default().push(belief.clone());
        }
        of_lock.into_values().flat_map(overlaps_of_one).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("a ledger that has not panicked")
}

fn overlaps_of_one(mut beliefs: Vec<Belief>) -> Vec<Vec<Belief>> {
    beliefs.sort_by_key(|belief| belief.from);
    let mut held: Vec<Belief> = Vec::new();
    let mut overlaps = Vec::new();
    for belief in beliefs {
        held.retain(|other| other.until > belief.from && other.token != belief.token);
        held.push(belief);
        let too_many = held.iter().all(|belief| belief.shares) && held.len() > LIMIT;
        if too_many || held.len() > 1 && held.iter().any(|belief| !belief.shares) {
            overlaps.push(held.clone());
        }
    }
    overlaps
}

/// The beliefs of an overlap, one line each, with times since `start`.
pub fn shown(overlap: &[Belief], start: Instant) -> String {
    let ms = |at: Instant| at.saturating_duration_since(start).as_millis();
    overlap.iter().fold(String::new(), |mut text, belief| {
        let Belief { lock, token, node, story, .. } = belief;
        let (from, until) = (ms(belief.from), ms(belief.until));
        let _ = writeln!(text, "  lock {lock}: {token}, granted by node {node}, from {from} to {until} ms: {story}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Whether beliefs (shares, from, until) of one lock go together.
    fn agree(beliefs: &[(bool, u64, u64)]) -> bool {
        let (ledger, start) = (Ledger::default(), Instant::now());
        for (number, &(shares, from, until)) in beliefs.iter().enumerate() {
            let at = |ms| start + Duration::from_millis(ms);
            let (from, until, token) = (at(from), at(until), number.to_string());
            ledger.believed(Belief { lock: 0, token, shares, node: 0, from, until, story: String::new() });
        }
        ledger.overlaps().is_empty()
    }

    #[test]
    fn who_holds_alone_holds_alone() {
        assert!(agree(&[(false, 10, 20), (false, 20, 30), (true, 30, 40)]));
        assert!(!agree(&[(false, 20, 30), (false, 10, 21)]));
        assert!(!agree(&[(false, 10, 50), (true, 20, 30)]));
        assert!(!agree(&[(true, 10, 50), (false, 20, 30)]));
    }

    #[test]
    fn no_more_shares_are_held_than_their_limit() {
        assert!(agree(&[(true, 10, 30), (true, 10, 20), (true, 20, 40)]));
        assert!(!agree(&[(true, 10, 30), (true, 10, 21), (true, 20, 40)]));
    }

    #[test]
    fn a_belief_that_was_over_before_it_began_is_none() {
        assert!(agree(&[(false, 10, 50), (false, 30, 20)]));
    }

    #[test]
    fn locks_are_told_apart() {
        let (ledger, from) = (Ledger::default(), Instant::now());
        for lock in 0..2 {
            let until = from + Duration::from_millis(10);
            let token = lock.to_string();
            ledger.believed(Belief { lock, token, shares: false, node: 0, from, until, story: String::new() });
        }
        assert!(ledger.overlaps().is_empty());
    }
}
