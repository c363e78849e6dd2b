//! The members of a Sorted Set with their scores.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The score of a member. It is not NaN.
#[derive(Clone, Copy, Debug)]
pub struct Score(pub f64);

/// Members with their scores.
pub type Members = BTreeMap<Vec<u8>, Score>;

impl Score {
    /// Parses a score, as ZADD does.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        std::str::from_utf8(word).ok()?.parse().ok().filter(|score: &f64| !score.is_nan()).map(Self)
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

/// Returns the member with the lowest score. Among equal scores it is the first member in byte order.
pub(super) fn lowest(members: &Members) -> Option<(&Vec<u8>, Score)> {
    members.iter().map(|(member, score)| (member, *score)).min_by_key(|&(member, score)| (score, member))
}
