//! What this node was last found to have of the cluster's slots.

use crate::server::{ClusterSlots, Whereabouts};

/// How often the server is asked for its slots, in milliseconds. Those who wait are to know within a second.
const LOOK_MS: i64 = 300;

/// The slots that this node had when it was last asked.
pub struct SlotWatch {
    known: ClusterSlots,
    /// Whether somebody waits in a slot that was not known to be here.
    is_outdated: bool,
    /// The monotonic time of the next look, in milliseconds.
    next_look: i64,
}

impl SlotWatch {
    pub const fn new() -> Self {
        Self { known: ClusterSlots::none(), is_outdated: false, next_look: i64::MIN }
    }

    /// Returns whether the server is to be asked now. The next time is a while later.
    pub fn take_look(&mut self, now_ms: i64) -> bool {
        let is_due = self.next_look <= now_ms;
        if is_due {
            self.next_look = now_ms.saturating_add(LOOK_MS);
        }
        is_due
    }

    /// Returns where the keys of a slot were.
    pub fn whereabouts(&self, slot: u16) -> Whereabouts {
        self.known.whereabouts(slot)
    }

    /// Records that somebody waits in a slot, which must be here. If it had left and has come back since the last look, it
    /// may leave before the next, which would find nothing new.
    pub fn add_waiter(&mut self, slot: u16) {
        self.is_outdated |= self.whereabouts(slot) == Whereabouts::Elsewhere;
    }

    /// Records the slots that this node has now. Returns whether a lock that is waited for may be elsewhere.
    pub fn update(&mut self, found: ClusterSlots) -> bool {
        let has_changed = std::mem::take(&mut self.is_outdated) || found.any_leaves() || found != self.known;
        self.known = found;
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(own: &str) -> ClusterSlots {
        ClusterSlots::parse(format!("id :0@0 myself - 0 0 0 connected {own}").as_bytes()).unwrap()
    }

    #[test]
    fn the_server_is_asked_every_now_and_then() {
        let mut watch = SlotWatch::new();
        assert!(watch.take_look(5000));
        assert!(!watch.take_look(5000 + LOOK_MS - 1));
        assert!(watch.take_look(5000 + LOOK_MS));
    }

    #[test]
    fn locks_are_looked_at_when_slots_have_changed_or_leave() {
        let mut watch = SlotWatch::new();
        assert!(watch.update(slots("1-9")));
        assert!(!watch.update(slots("1-9")));
        assert!(watch.update(slots("1-9 [5->-other]")));
        assert!(watch.update(slots("1-9 [5->-other]")), "its keys leave one by one");
        assert!(watch.update(slots("1-4 6-9")));
        assert!(!watch.update(slots("1-4 6-9")));
    }

    #[test]
    fn a_slot_that_was_back_between_two_looks_is_not_missed() {
        let mut watch = SlotWatch::new();
        watch.update(slots("1-9"));
        watch.add_waiter(5);
        assert!(!watch.update(slots("1-9")));
        watch.update(slots("1-4"));
        watch.add_waiter(5);
        assert!(watch.update(slots("1-4")));
        assert!(!watch.update(slots("1-4")));
    }
}
