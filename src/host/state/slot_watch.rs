//! Remembers which of the cluster's slots this node had when the server was last asked.

use crate::server::{ClusterSlots, SlotState};

/// The interval at which the server is asked for its slots, in milliseconds. Waiters are notified within a second.
const SLOT_CHECK_MS: i64 = 300;

/// The slots that this node had when it was last asked.
pub struct SlotWatch {
    last_seen: ClusterSlots,
    /// Whether a client waits for a lock in a slot that was not on this node when the server was last asked.
    is_outdated: bool,
    /// The monotonic time of the next check, in milliseconds.
    next_check: i64,
}

impl SlotWatch {
    pub const fn new() -> Self {
        Self { last_seen: ClusterSlots::none(), is_outdated: false, next_check: i64::MIN }
    }

    /// Returns whether the server is to be asked at `now_ms`, a monotonic time. The next check is due [`SLOT_CHECK_MS`] later.
    pub fn begin_check(&mut self, now_ms: i64) -> bool {
        let is_due = self.next_check <= now_ms;
        if is_due {
            self.next_check = now_ms.saturating_add(SLOT_CHECK_MS);
        }
        is_due
    }

    /// Returns where the keys of a slot were when the server was last asked.
    pub fn slot_state(&self, slot: u16) -> SlotState {
        self.last_seen.slot_state(slot)
    }

    /// Records that a client waits for a lock in a slot, which must be on this node. If the slot has come back since the last
    /// check, it may leave again before the next, which would find no change.
    pub fn add_waiter(&mut self, slot: u16) {
        self.is_outdated |= self.slot_state(slot) == SlotState::Elsewhere;
    }

    /// Records the slots that this node has now. Returns whether a lock with waiters may be on another node.
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
    fn server_is_asked_at_intervals() {
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
