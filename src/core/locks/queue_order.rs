//! The order in which attached entries are granted their locks.

use std::collections::BTreeSet;
use std::iter;

use super::record::{EntryId, RecordId};
use super::types::Turn;
use crate::core::steps;
use crate::core::tables::Slot;

/// The attached entries, ordered by queue and turn. A set for each queue would take the memory of a dozen entries.
pub struct QueueOrder(BTreeSet<Position>);

/// The position of an attached entry. The order of the fields is the order of the set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub queue: Slot,
    pub turn: Turn,
    pub entry: Slot,
}

/// The number of entries of one queue that [`QueueOrder::heads`] skips one by one, in about the time of a look-up.
const MAX_SCANNED: usize = 16;

impl QueueOrder {
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an entry. Returns whether it was not there.
    pub fn insert(&mut self, queue: RecordId, turn: Turn, entry: EntryId) -> bool {
        self.0.insert(Position { queue: queue.slot(), turn, entry: entry.slot() })
    }

    /// Removes an entry. Returns whether it was there.
    pub fn remove(&mut self, queue: RecordId, turn: Turn, entry: EntryId) -> bool {
        self.0.remove(&Position { queue: queue.slot(), turn, entry: entry.slot() })
    }

    /// Returns the attached entries of a queue in the order of their turns.
    pub fn of(&self, queue: RecordId) -> impl Iterator<Item = Slot> {
        self.from(queue, Turn(u64::MIN)).map(|(_, entry)| entry)
    }

    /// Returns the attached entries of a queue whose turns are not before `turn`, with their turns.
    pub fn from(&self, queue: RecordId, turn: Turn) -> impl Iterator<Item = (Turn, Slot)> {
        let queue = queue.slot();
        let rest = self.0.range(Position { queue, turn, entry: Slot::MIN }..).inspect(|_| steps::count());
        rest.take_while(move |position| position.queue == queue).map(|position| (position.turn, position.entry))
    }

    /// Returns the first attached entry of each queue that has one, in the order of the queues.
    ///
    /// A scan of the set is several times faster than look-ups, so only the rest of a long queue is skipped by one.
    pub fn heads(&self) -> impl Iterator<Item = Position> {
        let mut rest = self.0.range(..);
        let mut latest = None;
        iter::from_fn(move || {
            let mut near = rest.by_ref().take(MAX_SCANNED).inspect(|_| steps::count());
            let near = near.find(|position| Some(position.queue) != latest);
            let head = match (near, latest) {
                (Some(head), _) => head,
                (None, latest) => {
                    let from = Position { queue: latest?.next()?, turn: Turn(u64::MIN), entry: Slot::MIN };
                    rest = self.0.range(from..);
                    steps::count();
                    rest.next()?
                }
            };
            debug_assert!(latest < Some(head.queue), "queues come in order");
            latest = Some(head.queue);
            Some(*head)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Id;

    /// A queue with the lowest slots after 0.
    fn queue(number: u32) -> RecordId {
        Id::from_bits(u64::from(number) + 1)
    }

    #[test]
    fn every_queue_has_one_head() {
        let entry = |number: u32| EntryId::from_bits(u64::from(number) + 1);
        for lengths in [
            vec![],
            vec![1],
            vec![MAX_SCANNED + 1],
            vec![1, 40, 1, 1, 17, 16, 15, 2],
            vec![40, 40],
            vec![0, 3, 0, 50, 0],
        ] {
            let mut order = QueueOrder::new();
            for (number, &length) in (0..).zip(&lengths) {
                for turn in 0..length as u32 {
                    assert!(order.insert(queue(number), Turn(u64::from(turn) + 7), entry(turn)));
                }
            }
            let heads: Vec<_> = order.heads().map(|head| (head.queue, head.turn, head.entry)).collect();
            let expected = (0..).zip(&lengths).filter(|(_, length)| **length > 0);
            let expected: Vec<_> =
                expected.map(|(number, _)| (queue(number).slot(), Turn(7), entry(0).slot())).collect();
            assert_eq!(heads, expected, "{lengths:?}");
        }
    }
}
