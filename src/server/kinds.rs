//! Types that the simulated server shares: the mode of an open key, the type of its value, and the node of its slot.

/// The mode in which a key is opened.
#[derive(Clone, Copy)]
pub enum Mode {
    Read,
    Write,
}

/// The type of the value of a key, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// The key does not exist.
    Empty,
    String,
    Hash,
    SortedSet,
    Other,
}

/// The state of a key's slot, as seen by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// This node serves the slot. Outside of a cluster this is always so.
    Ours,
    /// Another node serves the slot; or the slot is being migrated and the key is missing here, so it may exist there.
    Elsewhere,
    /// The cluster is down.
    Unserved,
}

/// A write that changes nothing and creates nothing, chosen by what the key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `SETRANGE key 0 ""`: writes no bytes to a String or an empty key.
    String,
    /// `HDEL key ""`: removes a field that no Hash of the module has.
    Hash,
    /// `ZREMRANGEBYRANK key 1 0`: removes an empty range.
    SortedSet,
}
