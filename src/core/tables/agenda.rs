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
/// AT_ONCE < turn < -1   a turn among the owners with an immediate item
/// RESTING = -1          no turn until it is woken
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
    /// The owners that rest. Some may have been woken or have left.
    resting: Vec<Slot>,
    last_turn: UnixMs,
    /// Whether the last turn was that of an owner without an immediate item.
    was_timed: bool,
}

const RESTING: UnixMs = -1;

/// Returns whether an owner with this place rests.
pub fn is_resting(place: UnixMs) -> bool {
    place == RESTING
}

/// Returns whether an owner with this place has a turn, or rests.
fn is_turn(place: UnixMs) -> bool {
    place < 0
}

impl<I: Entry> Agenda<I> {
    pub const fn new() -> Self {
        Self {
            items: BTreeSet::new(),
            ready: TimerQueue::new(),
            timed: TimerQueue::new(),
            resting: Vec::new(),
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
        if earliest == NEVER || is_turn(*place) && !is_resting(*place) && earliest != AT_ONCE {
            self.move_to(owner, place, earliest);
        } else if !is_turn(*place) {
            self.move_to(owner, place, earliest.max(*place));
        }
    }

    /// Returns the time at which the next item is due.
    pub fn earliest(&self) -> Option<UnixMs> {
        let is_ready = self.ready.earliest().is_some() || !self.resting.is_empty();
        if is_ready { Some(AT_ONCE) } else { self.timed.earliest() }
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

    /// Gives an owner no turn until it is woken.
    pub fn rest(&mut self, owner: Slot, place: &mut UnixMs) {
        if !is_resting(*place) && *place != NEVER {
            self.move_to(owner, place, RESTING);
            self.resting.push(owner);
        }
    }

    /// Takes an owner that may rest. The caller wakes it.
    pub fn next_resting(&mut self) -> Option<Slot> {
        self.resting.pop()
    }

    /// Gives an owner that rests its place again.
    pub fn wake(&mut self, owner: Slot, place: &mut UnixMs) {
        if !is_resting(*place) {
            return;
        }
        match self.earliest_of(owner) {
            AT_ONCE => self.give_turn(owner, place),
            earliest => self.move_to(owner, place, earliest),
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
        debug_assert!(self.last_turn < RESTING - 1, "a turn is before every time");
        self.last_turn = self.last_turn.saturating_add(1);
        self.move_to(owner, place, self.last_turn);
    }

    fn move_to(&mut self, owner: Slot, place: &mut UnixMs, to: UnixMs) {
        let before = std::mem::replace(place, to);
        if !is_resting(before) {
            self.of(before).reschedule(owner, before, NEVER);
        }
        if !is_resting(to) {
            self.of(to).reschedule(owner, NEVER, to);
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
        let has_turn = is_turn(place) && !is_resting(place);
        assert_eq!([has(&self.ready), has(&self.timed)], [has_turn, !is_turn(place) && place != NEVER]);
        assert!(!is_resting(place) || self.resting.contains(&owner), "an owner rests forever");
    }
}

#[cfg(test)]
mod tests;
