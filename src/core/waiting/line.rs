//! In which order those who are present are served.

use std::collections::BTreeSet;

use super::types::{PlaceId, QueueId, Turn};
use crate::core::slab::Slot;

/// The lines of all queues, one behind the other in one set: a set for each queue would take the room of a dozen turns
/// where only one waits.
pub struct Lines(BTreeSet<Position>);

/// A place that is present, where it stands. The order of the fields is that of the set.
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

    /// Has a place take up its turn, if it has not yet.
    pub fn insert(&mut self, queue: QueueId, turn: Turn, place: PlaceId) {
        self.0.insert(Position { queue: queue.slot(), turn, place });
    }

    /// Takes a place out of the line. `false`: it was not there.
    pub fn remove(&mut self, queue: QueueId, turn: Turn, place: PlaceId) -> bool {
        self.0.remove(&Position { queue: queue.slot(), turn, place })
    }

    /// The places in the line of one queue, first in line first.
    pub fn of(&self, queue: QueueId) -> impl Iterator<Item = PlaceId> {
        let queue = queue.slot();
        let from = Position { queue, turn: Turn(u64::MIN), place: PlaceId::MIN };
        self.0.range(from..).take_while(move |position| position.queue == queue).map(|position| position.place)
    }
}
