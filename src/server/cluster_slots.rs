//! The hash slots of a node of a cluster, by what it says of itself.

use std::str;

/// The slots of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSlots {
    /// The slots that are the node's, as ranges from the first to the last, in ascending order.
    own: Vec<(u16, u16)>,
    leaving: Vec<u16>,
    arriving: Vec<u16>,
}

/// Where the keys of a slot are, as a node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    Here,
    /// Here, or already at the node that the slot moves to.
    Leaving,
    /// Still at the node that the slot comes from, or already here.
    Arriving,
    Elsewhere,
}

impl ClusterSlots {
    /// Creates the slots of a node that has none.
    pub const fn none() -> Self {
        Self { own: Vec::new(), leaving: Vec::new(), arriving: Vec::new() }
    }

    /// Reads the node's own line of the reply to `CLUSTER NODES`. Returns `None` if there is none.
    ///
    /// Its ninth word and those that follow are slots: `7` and `0-5` are the node's, `[7->-id]` leaves, `[8-<-id]` arrives.
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

    /// Returns where the keys of a slot are.
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

    /// Returns whether a slot is on its way to another node, which its keys reach one by one.
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
    fn the_slots_of_the_node_are_those_of_its_own_line() {
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
    fn a_node_may_have_no_slots_and_a_text_no_node() {
        let slots = ClusterSlots::parse(b"beef :0@0 myself,master - 0 0 0 connected\n").unwrap();
        assert_eq!(slots, ClusterSlots::none());
        assert!(!slots.any_leaves());
        assert_eq!(ClusterSlots::parse(b""), None);
        assert_eq!(ClusterSlots::parse(b"\xff \xff myself\nbeef :0@0 master - 0 0 0 connected 0-16383\n"), None);
    }

    #[test]
    fn what_is_no_slot_is_passed_over() {
        let slots = ClusterSlots::parse(b"beef :0@0 myself - 0 0 0 connected 5 x [ [6] [->-] 70000 1-").unwrap();
        assert_eq!(slots, ClusterSlots { own: vec![(5, 5)], ..ClusterSlots::none() });
    }
}
