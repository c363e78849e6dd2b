//! Rounds over all queues, a few at a time.

use super::types::{Queue, QueueId};
use crate::core::{Arena, Cursor};

/// A round over all queues, or none. One that is to begin before another has ended begins behind it: a round that began
/// anew each time would never come to its end.
pub struct Round {
    cursor: Cursor,
    once_more: bool,
}

impl Round {
    /// No round.
    pub const END: Self = Self { cursor: Cursor::END, once_more: false };

    /// Begins a round in which every queue is returned that is there now, and stays.
    pub fn begin(&mut self) {
        if self.cursor.has_more() {
            self.once_more = true;
        } else {
            self.cursor = Cursor::start();
        }
    }

    /// Returns whether there may be more.
    pub fn has_more(&self) -> bool {
        self.cursor.has_more()
    }

    /// Returns the next queue, or `None` at the end.
    pub fn next(&mut self, queues: &Arena<Queue>) -> Option<QueueId> {
        queues.next(&mut self.cursor).or_else(|| {
            if !std::mem::take(&mut self.once_more) {
                return None;
            }
            self.cursor = Cursor::start();
            queues.next(&mut self.cursor)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: i32) -> Arena<Queue> {
        let mut queues = Arena::new();
        (0..count).for_each(|db| _ = queues.insert(Queue::new(db, b"k"[..].into())));
        queues
    }

    fn take(round: &mut Round, queues: &Arena<Queue>, count: usize) -> Vec<i32> {
        (0..count).map_while(|_| round.next(queues)).filter_map(|id| queues.get(id)).map(|queue| queue.db).collect()
    }

    #[test]
    fn a_round_that_is_asked_for_again_and_again_comes_to_its_end() {
        let (mut round, queues) = (Round::END, queues(5));
        round.begin();
        assert_eq!(take(&mut round, &queues, 2), [0, 1]);
        round.begin();
        assert_eq!(take(&mut round, &queues, 2), [2, 3]);
        round.begin();
        assert_eq!(take(&mut round, &queues, 9), [4, 0, 1, 2, 3, 4], "and once more for those who asked meanwhile");
        assert!(!round.has_more());
        assert_eq!(take(&mut round, &queues, 1), [] as [i32; 0]);
    }
}
