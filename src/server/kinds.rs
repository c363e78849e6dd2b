//! Types that the simulated server shares: the mode of an open key, the type of its value, and the node of its slot.

/// The mode in which a key is opened.
#[derive(Clone, Copy)]
pub enum Mode {
    /// For reading. Writes have no effect.
    Read,
    /// For reading and writing.
    Write,
}

/// The type of the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// The key does not exist.
    Empty,
    /// The value is a String.
    String,
    /// The value is a Hash.
    Hash,
    /// The value is a Sorted Set.
    SortedSet,
    /// The value has another type.
    Other,
}

/// The state of a key's slot, as seen by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// This node serves the slot. Without a cluster it serves all slots.
    Ours,
    /// Another node serves the slot; or the slot is being migrated and the key is missing here, so it may exist there.
    Elsewhere,
    /// The cluster is down.
    Unserved,
}

/// A write that changes nothing and creates nothing. Choose it by the type of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `SETRANGE key 0 ""`: writes no bytes to a String or an empty key.
    String,
    /// `HDEL key ""`: removes a field that no Hash of the module has.
    Hash,
    /// `ZREMRANGEBYRANK key 1 0`: removes an empty range.
    SortedSet,
}
