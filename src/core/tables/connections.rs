//! The entries of connections, until these close.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::core::{ClientId, OrBug, UnixMs};

/// Entries of type `T`, each of which belongs to a connection.
///
/// A connection may have very many entries, so its close is only recorded, and its entries are removed one by one.
///
/// Invariants: a connection in the table has entries. A closed connection is in the table.
pub struct Connections<T> {
    entries: BTreeMap<ClientId, BTreeSet<T>>,
    /// Closed connections that still have entries, with the time of the close.
    closed: BTreeMap<ClientId, UnixMs>,
    /// The closed connection that had the last turn.
    last: ClientId,
}

impl<T: Copy + Ord> Connections<T> {
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), closed: BTreeMap::new(), last: ClientId::MIN }
    }

    pub fn add(&mut self, client: ClientId, entry: T) {
        debug_assert!(!self.is_closed(client), "a closed connection gets an entry");
        self.entries.entry(client).or_default().insert(entry);
    }

    /// Records that an entry does not belong to a connection any more. Returns whether it did.
    pub fn remove(&mut self, client: ClientId, entry: T) -> bool {
        let Some(entries) = self.entries.get_mut(&client) else { return false };
        let was_there = entries.remove(&entry);
        if entries.is_empty() {
            self.entries.remove(&client);
            self.closed.remove(&client);
        }
        was_there
    }

    /// Records that a connection has closed at `now`. A connection without entries is not recorded.
    pub fn close(&mut self, client: ClientId, now: UnixMs) {
        if self.entries.contains_key(&client) {
            self.closed.insert(client, now);
        }
    }

    /// Returns whether a connection with entries has closed.
    pub fn is_closed(&self, client: ClientId) -> bool {
        self.closed.contains_key(&client)
    }

    /// Returns when a connection with entries has closed, or `None` if it is open.
    pub fn closed_at(&self, client: ClientId) -> Option<UnixMs> {
        self.closed.get(&client).copied()
    }

    /// Returns whether any closed connection still has entries.
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Returns an entry of a closed connection, if there is one. The closed connections take turns, however many entries one has.
    pub fn next_of_closed(&mut self) -> Option<(ClientId, T)> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let (&client, _) = self.closed.range(behind).next().or_else(|| self.closed.first_key_value())?;
        self.last = client;
        let entries = self.entries.get(&client).or_bug("a closed connection has no entries")?;
        debug_assert!(!entries.is_empty(), "a connection without entries is in the table");
        Some((client, *entries.first()?))
    }

    #[cfg(any(test, feature = "simulated"))]
    pub fn entries(&self) -> impl Iterator<Item = T> {
        self.entries.values().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_connection_yields_all_its_entries() {
        let mut connections = Connections::new();
        [(1, 'a'), (2, 'b'), (2, 'c')].into_iter().for_each(|(client, entry)| connections.add(client, entry));
        assert!(!connections.has_closed());
        connections.close(2, 7_000);
        assert!(connections.is_closed(2) && !connections.is_closed(1));
        assert_eq!([1, 2].map(|client| connections.closed_at(client)), [None, Some(7_000)]);
        assert_eq!(connections.next_of_closed(), Some((2, 'b')));
        connections.remove(2, 'b');
        assert_eq!(connections.next_of_closed(), Some((2, 'c')));
        connections.remove(2, 'c');
        assert!(!connections.has_closed());
        assert_eq!(connections.entries().collect::<Vec<_>>(), ['a']);
        connections.add(3, 'd');
        assert_eq!(connections.entries().collect::<Vec<_>>(), ['a', 'd']);
    }

    #[test]
    fn closed_connections_take_turns() {
        let mut connections = Connections::new();
        for (client, entry) in [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'd'), (3, 'e')] {
            connections.add(client, entry);
        }
        [1, 3].into_iter().for_each(|client| connections.close(client, 7_000));
        let mut next = || {
            let (client, entry) = connections.next_of_closed()?;
            connections.remove(client, entry);
            Some(entry)
        };
        assert_eq!([next(), next(), next(), next(), next()], [Some('a'), Some('e'), Some('b'), Some('c'), None]);
    }

    #[test]
    fn connection_without_entries_is_not_recorded() {
        let mut connections = Connections::<char>::new();
        connections.close(1, 7_000);
        assert!(!connections.has_closed());
        connections.add(1, 'a');
        assert!(!connections.is_closed(1));
    }
}
