//! Sweeps over all entries of an arena, a few entries at a time.

use super::arena::{Arena, Cursor, Id};

/// A sweep over all entries. Another one begins after its end: a sweep that restarted each time might never end.
pub struct Sweep {
    cursor: Cursor,
    /// Whether another sweep begins at the end of this one.
    is_restart_due: bool,
    /// The number of sweeps that have begun.
    number: u32,
}

impl Sweep {
    /// A sweep that has ended.
    pub const END: Self = Self { cursor: Cursor::END, is_restart_due: false, number: 0 };

    /// Begins a sweep. It returns every entry that exists from now until its end.
    pub fn begin(&mut self) {
        if self.cursor.has_more() {
            self.is_restart_due = true;
        } else {
            self.start();
        }
    }

    pub fn has_more(&self) -> bool {
        self.cursor.has_more()
    }

    /// Returns the number of the current or last sweep.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the next entry, or `None` at the end.
    pub fn next<T>(&mut self, entries: &Arena<T>) -> Option<Id<T>> {
        debug_assert!(self.cursor.has_more() || !self.is_restart_due, "a restart is due after the end");
        entries.next(&mut self.cursor).or_else(|| {
            if !std::mem::take(&mut self.is_restart_due) {
                return None;
            }
            self.start();
            entries.next(&mut self.cursor)
        })
    }

    fn start(&mut self) {
        self.cursor = Cursor::start();
        self.number = self.number.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: i32) -> Arena<i32> {
        let mut numbers = Arena::new();
        (0..count).for_each(|number| _ = numbers.insert(number));
        numbers
    }

    fn take(sweep: &mut Sweep, numbers: &Arena<i32>, count: usize) -> Vec<i32> {
        (0..count).map_while(|_| sweep.next(numbers)).filter_map(|id| numbers.get(id)).copied().collect()
    }

    #[test]
    fn sweep_restarted_repeatedly_ends() {
        let (mut sweep, numbers) = (Sweep::END, numbers(5));
        sweep.begin();
        assert_eq!(take(&mut sweep, &numbers, 2), [0, 1]);
        sweep.begin();
        assert_eq!(take(&mut sweep, &numbers, 2), [2, 3]);
        sweep.begin();
        assert_eq!(take(&mut sweep, &numbers, 9), [4, 0, 1, 2, 3, 4], "a second sweep for the later calls");
        assert!(!sweep.has_more());
        assert_eq!(take(&mut sweep, &numbers, 1), [] as [i32; 0]);
    }
}
