//! The functions of an open key for Sorted Sets.

use std::collections::BTreeMap;

use super::key::Key;
use super::keyspace::{Entry, Value};
use super::members::{self, Members, Score};
use super::string::{OwnedString, StringRef};
use crate::core::steps;

impl<M> Key<'_, '_, M> {
    /// Returns the score of a member. Returns `None` if the value is no Sorted Set or has no such member.
    pub fn score(&self, member: StringRef<'_>) -> Option<f64> {
        self.members()?.get(member.bytes()).map(|score| score.0)
    }

    /// Returns the number of members of a Sorted Set.
    pub fn member_count(&self) -> usize {
        self.members().map_or(0, BTreeMap::len)
    }

    /// Returns the member with the lowest score of a Sorted Set, and its score.
    pub fn lowest(&self) -> Option<(OwnedString, f64)> {
        members::lowest(self.members()?).map(|(member, score)| (OwnedString::new(member), score.0))
    }

    /// Returns the lowest score of a Sorted Set.
    pub fn lowest_score(&self) -> Option<f64> {
        self.members()?.values().min().map(|score| score.0)
    }

    /// Returns the highest score of a Sorted Set.
    pub fn highest_score(&self) -> Option<f64> {
        self.members()?.values().max().map(|score| score.0)
    }

    /// Returns the number of members whose score is lower than `score`, but at most `most`.
    pub fn count_below(&self, score: f64, most: usize) -> usize {
        let members = self.members().into_iter().flatten();
        members.filter(|(_, other)| other.0 < score).take(most).inspect(|_| steps::count()).count()
    }

    /// Sets the score of a member of a Sorted Set. A key that does not exist becomes a Sorted Set. Has no effect on any other
    /// value.
    pub fn set_score(&mut self, member: StringRef<'_>, score: f64) {
        let empty = Entry { value: Value::SortedSet(Members::new()), expiry: None };
        let mut entry = self.entry().cloned().unwrap_or(empty);
        if let Value::SortedSet(members) = &mut entry.value {
            members.insert(member.bytes().to_vec(), Score(score));
            self.write(Some(entry));
        }
    }

    /// Removes a member of a Sorted Set. The key is deleted with its last member.
    pub fn remove_member(&mut self, member: StringRef<'_>) {
        let Some(mut entry) = self.entry().cloned() else { return };
        if let Value::SortedSet(members) = &mut entry.value {
            if members.remove(member.bytes()).is_some() {
                let is_last = members.is_empty();
                self.write((!is_last).then_some(entry));
            }
        }
    }

    fn members(&self) -> Option<&Members> {
        match &self.entry()?.value {
            Value::SortedSet(members) => Some(members),
            _ => None,
        }
    }
}
