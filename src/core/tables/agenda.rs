//! An agenda: what is due for many owners, which take turns.

use std::collections::BTreeSet;

use super::slab::Slot;
use super::timer_queue::{Entry, NEVER, TimerQueue};
use crate::core::{UnixMs, check, steps};

/// The time of an item that is due immediately.
pub const AT_ONCE: UnixMs = UnixMs::MIN;

/// Items of type `I` by owner and time. All operations are O(log n).
///
/// Each owner has one **place**, however many items it has, and stores it:
///
/// ```text
/// AT_ONCE < turn < 0    a turn among the owners with an immediate item
/// 0 <= time             the time of its earliest item, or that of its last turn if this is later
/// NEVER                 no items
/// ```
///
/// A turn is for one item of one owner, which then goes to the back. Every other turn goes to the newest, see [`TimerQueue`]. So
/// neither an owner with many items nor a crowd of owners delays another one.
pub struct Agenda<I> {
    items: BTreeSet<(Slot, UnixMs, I)>,
    /// The owners with an immediate item, by turn.
    ready: TimerQueue<Slot>,
    /// The other owners, by time.
    timed: TimerQueue<Slot>,
    last_turn: UnixMs,
    /// Whether the last turn was that of an owner without an immediate item.
    was_timed: bool,
}

fn is_turn(place: UnixMs) -> bool {
    place < 0
}

impl<I: Entry> Agenda<I> {
    pub const fn new() -> Self {
        Self {
            items: BTreeSet::new(),
            ready: TimerQueue::new(),
            timed: TimerQueue::new(),
            last_turn: AT_ONCE,
            was_timed: false,
        }
    }

    /// Returns the number of items and places.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let places = self.ready.entry_count().saturating_add(self.timed.entry_count());
        self.items.len().saturating_add(places)
    }

    /// Adds an item. [`NEVER`] adds nothing.
    pub fn insert(&mut self, owner: Slot, place: &mut UnixMs, time: UnixMs, item: I) {
        debug_assert!(time == AT_ONCE || time >= 0, "an item has a turn");
        if time == NEVER {
            return;
        }
        check(self.items.insert((owner, time, item)), "an item is on the agenda twice");
        match time {
            AT_ONCE if !is_turn(*place) => self.give_turn(owner, place),
            _ if time < *place && !is_turn(*place) => self.move_to(owner, place, time),
            _ => {}
        }
    }

    /// Removes an item that was added with this time.
    pub fn remove(&mut self, owner: Slot, place: &mut UnixMs, time: UnixMs, item: I) {
        if time == NEVER {
            return;
        }
        check(self.items.remove(&(owner, time, item)), "an item is not on the agenda");
        let earliest = self.earliest_of(owner);
        if is_turn(*place) && earliest != AT_ONCE {
            self.move_to(owner, place, earliest);
        } else if earliest == NEVER {
            self.move_to(owner, place, NEVER);
        } else if !is_turn(*place) {
            self.move_to(owner, place, earliest.max(*place));
        }
    }

    /// Returns the time at which the next item is due.
    pub fn earliest(&self) -> Option<UnixMs> {
        self.ready.earliest().map(|_| AT_ONCE).or_else(|| self.timed.earliest())
    }

    /// Returns the owner whose turn it is among those with an item that is due at `now`.
    pub fn turn(&mut self, now: UnixMs) -> Option<Slot> {
        self.was_timed = !self.was_timed;
        if self.was_timed {
            self.timed.turn(now).or_else(|| self.ready.turn(UnixMs::MAX))
        } else {
            self.ready.turn(UnixMs::MAX).or_else(|| self.timed.turn(now))
        }
    }

    /// Ends the turn of an owner: others that are due at `now` have theirs first.
    pub fn end_turn(&mut self, owner: Slot, place: &mut UnixMs, now: UnixMs) {
        if is_turn(*place) {
            self.give_turn(owner, place);
        } else if *place != NEVER {
            self.move_to(owner, place, now.max(*place));
        }
    }

    /// Returns the items of an owner from a time on, the earliest first.
    pub fn items_of(&self, owner: Slot, from: UnixMs) -> impl Iterator<Item = (UnixMs, I)> {
        let rest = self.items.range((owner, from, I::LEAST)..).inspect(|_| steps::count());
        rest.take_while(move |(other, ..)| *other == owner).map(|&(_, time, item)| (time, item))
    }

    fn earliest_of(&self, owner: Slot) -> UnixMs {
        self.items_of(owner, AT_ONCE).next().map_or(NEVER, |(time, _)| time)
    }

    /// Gives an owner the last turn.
    fn give_turn(&mut self, owner: Slot, place: &mut UnixMs) {
        debug_assert!(self.last_turn < -1, "a turn is before every time");
        self.last_turn = self.last_turn.saturating_add(1);
        self.move_to(owner, place, self.last_turn);
    }

    fn move_to(&mut self, owner: Slot, place: &mut UnixMs, to: UnixMs) {
        let before = std::mem::replace(place, to);
        if is_turn(before) != is_turn(to) {
            self.of(before).reschedule(owner, before, NEVER);
            self.of(to).reschedule(owner, NEVER, to);
        } else {
            self.of(to).reschedule(owner, before, to);
        }
    }

    fn of(&mut self, place: UnixMs) -> &mut TimerQueue<Slot> {
        if is_turn(place) { &mut self.ready } else { &mut self.timed }
    }
}

#[cfg(test)]
impl<I: Entry> Agenda<I> {
    /// Returns whether an item is on the agenda.
    pub fn has(&self, owner: Slot, time: UnixMs, item: I) -> bool {
        self.items.contains(&(owner, time, item))
    }

    /// Panics if an owner does not have the place for its items.
    pub fn check_place(&self, owner: Slot, place: UnixMs) {
        match self.earliest_of(owner) {
            AT_ONCE => assert!(is_turn(place), "an owner with an immediate item has no turn"),
            earliest => {
                assert!(place >= earliest && (place == NEVER) == (earliest == NEVER), "{place}, not {earliest}")
            }
        }
        let has = |queue: &TimerQueue<Slot>| queue.has(owner, place);
        assert_eq!([has(&self.ready), has(&self.timed)], [is_turn(place), !is_turn(place) && place != NEVER]);
    }
}

#[cfg(test)]
mod tests;
