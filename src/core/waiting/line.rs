//! The order in which present places are served.

use std::collections::BTreeSet;

use super::types::{PlaceId, QueueId, Turn};
use crate::core::slab::Slot;

/// The lines of all queues, one after the other in one set. A set for each queue would take the space of a dozen places
/// where only one waits.
pub struct Lines(BTreeSet<Position>);

/// The position of a present place. The order of the fields is the order of the set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    queue: Slot,
    turn: Turn,
    place: PlaceId,
}

impl Lines {
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the number of places in all lines.
    #[cfg(feature = "simulated")]
    pub fn place_count(&self) -> usize {
        self.0.len()
    }

    /// Adds a place to the line, if it is not in it.
    pub fn insert(&mut self, queue: QueueId, turn: Turn, place: PlaceId) {
        self.0.insert(Position { queue: queue.slot(), turn, place });
    }

    /// Removes a place from the line. Returns whether it was in it.
    pub fn remove(&mut self, queue: QueueId, turn: Turn, place: PlaceId) -> bool {
        self.0.remove(&Position { queue: queue.slot(), turn, place })
    }

    /// Returns the places in the line of a queue, first in line first.
    pub fn of(&self, queue: QueueId) -> impl Iterator<Item = PlaceId> {
        let queue = queue.slot();
        let from = Position { queue, turn: Turn(u64::MIN), place: PlaceId::MIN };
        self.0.range(from..).take_while(move |position| position.queue == queue).map(|position| position.place)
    }
}
