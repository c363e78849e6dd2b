//! The hash slots of a node of a cluster, as the node reports them.

use std::str;

/// The slots of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSlots {
    /// The slots that the node serves, as ranges of the first and the last slot, in ascending order.
    own: Vec<(u16, u16)>,
    /// The slots that move to another node.
    leaving: Vec<u16>,
    /// The slots that move to this node.
    arriving: Vec<u16>,
}

/// The node that has the keys of a slot, as one node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// This node has the keys.
    Here,
    /// The slot moves to another node, which may already have some of the keys.
    Leaving,
    /// The slot moves to this node, and the other node may still have some of the keys.
    Arriving,
    /// Another node has the keys.
    Elsewhere,
}

impl ClusterSlots {
    /// Returns the slots of a node that has none.
    pub const fn none() -> Self {
        Self { own: Vec::new(), leaving: Vec::new(), arriving: Vec::new() }
    }

    /// Parses the node's own line of the reply to `CLUSTER NODES`. Returns `None` if the reply has no such line.
    ///
    /// Slots begin at the ninth word: the node serves `7` and `0-5`; `[7->-id]` moves to another node, `[8-<-id]` moves to this
    /// one. Other words are ignored.
    pub fn parse(nodes: &[u8]) -> Option<Self> {
        let lines = nodes.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        let is_own = |flags: &str| flags.split(',').any(|flag| flag == "myself");
        let own_line = lines.map(|line| line.split(' ')).find(|words| words.clone().nth(2).is_some_and(is_own))?;
        let mut slots = Self::none();
        own_line.skip(8).for_each(|word| slots.add(word));
        slots.own.sort_unstable();
        Some(slots)
    }

    fn add(&mut self, word: &str) {
        let number = |text: &str| text.parse::<u16>().ok();
        if let Some(moving) = word.strip_prefix('[') {
            let leaving = moving.split_once("->-").and_then(|(slot, _)| number(slot));
            let arriving = moving.split_once("-<-").and_then(|(slot, _)| number(slot));
            self.leaving.extend(leaving);
            self.arriving.extend(arriving);
        } else {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            self.own.extend(number(first).zip(number(last)));
        }
    }

    /// Returns which node has the keys of a slot.
    pub fn slot_state(&self, slot: u16) -> SlotState {
        if self.leaving.contains(&slot) {
            SlotState::Leaving
        } else if self.arriving.contains(&slot) {
            SlotState::Arriving
        } else if self.is_own(slot) {
            SlotState::Here
        } else {
            SlotState::Elsewhere
        }
    }

    fn is_own(&self, slot: u16) -> bool {
        let range = self.own.partition_point(|&(_, last)| last < slot);
        self.own.get(range).is_some_and(|&(first, _)| first <= slot)
    }

    /// Returns whether a slot moves to another node. Its keys move one by one.
    pub fn any_leaves(&self) -> bool {
        !self.leaving.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
        c0ffee 127.0.0.1:7001@17001,host slave beef 0 1 2 connected\n\
        beef 127.0.0.1:7000@17000,,tls-port=0,shard-id=5 myself,master - 0 0 4 connected 0-5 7 16383 [7->-c0ffee] [9-<-f00d]\n\
        f00d 127.0.0.1:7002@17002 master - 0 1 3 connected 6 8-16382\n";

    #[test]
    fn slots_are_read_from_own_line() {
        let slots = ClusterSlots::parse(NODES.as_bytes()).unwrap();
        for here in [0, 3, 5, 16383] {
            assert_eq!(slots.slot_state(here), SlotState::Here, "{here}");
        }
        assert_eq!(slots.slot_state(7), SlotState::Leaving);
        assert_eq!(slots.slot_state(9), SlotState::Arriving);
        for elsewhere in [6, 8, 10, 16382] {
            assert_eq!(slots.slot_state(elsewhere), SlotState::Elsewhere, "{elsewhere}");
        }
        assert!(slots.any_leaves());
    }

    #[test]
    fn node_without_slots_differs_from_missing_line() {
        let slots = ClusterSlots::parse(b"beef :0@0 myself,master - 0 0 0 connected\n").unwrap();
        assert_eq!(slots, ClusterSlots::none());
        assert!(!slots.any_leaves());
        assert_eq!(ClusterSlots::parse(b""), None);
        assert_eq!(ClusterSlots::parse(b"\xff \xff myself\nbeef :0@0 master - 0 0 0 connected 0-16383\n"), None);
    }

    #[test]
    fn invalid_slots_are_ignored() {
        let slots = ClusterSlots::parse(b"beef :0@0 myself - 0 0 0 connected 5 x [ [6] [->-] 70000 1-").unwrap();
        assert_eq!(slots, ClusterSlots { own: vec![(5, 5)], ..ClusterSlots::none() });
    }
}
