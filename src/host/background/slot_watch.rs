//! What this node was last found to have of the cluster's slots.

use crate::server::{ClusterSlots, SlotState};

/// How often the server is asked for its slots, in milliseconds. Those who wait are to know within a second.
const SLOT_CHECK_MS: i64 = 300;

/// The slots that this node had when it was last asked.
pub struct SlotWatch {
    last_seen: ClusterSlots,
    /// Whether somebody waits in a slot that was not known to be here.
    is_outdated: bool,
    /// The monotonic time of the next look, in milliseconds.
    next_check: i64,
}

impl SlotWatch {
    pub const fn new() -> Self {
        Self { last_seen: ClusterSlots::none(), is_outdated: false, next_check: i64::MIN }
    }

    /// Returns whether the server is to be asked now. The next time is a while later.
    pub fn begin_check(&mut self, now_ms: i64) -> bool {
        let is_due = self.next_check <= now_ms;
        if is_due {
            self.next_check = now_ms.saturating_add(SLOT_CHECK_MS);
        }
        is_due
    }

    /// Returns where the keys of a slot were.
    pub fn slot_state(&self, slot: u16) -> SlotState {
        self.last_seen.slot_state(slot)
    }

    /// Records that somebody waits in a slot, which must be here. If it had left and has come back since the last look, it
    /// may leave before the next, which would find nothing new.
    pub fn add_waiter(&mut self, slot: u16) {
        self.is_outdated |= self.slot_state(slot) == SlotState::Elsewhere;
    }

    /// Records the slots that this node has now. Returns whether a lock that is waited for may be elsewhere.
    pub fn update(&mut self, found: ClusterSlots) -> bool {
        let has_changed = std::mem::take(&mut self.is_outdated) || found.any_leaves() || found != self.last_seen;
        self.last_seen = found;
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
        assert!(watch.begin_check(5000));
        assert!(!watch.begin_check(5000 + SLOT_CHECK_MS - 1));
        assert!(watch.begin_check(5000 + SLOT_CHECK_MS));
    }

    #[test]
    fn changed_or_leaving_slots_cause_check() {
        let mut watch = SlotWatch::new();
        assert!(watch.update(slots("1-9")));
        assert!(!watch.update(slots("1-9")));
        assert!(watch.update(slots("1-9 [5->-other]")));
        assert!(watch.update(slots("1-9 [5->-other]")), "its keys leave one by one");
        assert!(watch.update(slots("1-4 6-9")));
        assert!(!watch.update(slots("1-4 6-9")));
    }

    #[test]
    fn slot_back_between_checks_is_noticed() {
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
