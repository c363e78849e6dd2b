//! Slots.

/// What a node of a cluster knows of slots. A key's slot is the number of its last byte, so that related names fall together.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// Slots that are other nodes'.
    pub elsewhere: std::collections::BTreeSet<u8>,
    /// Slots on their way to another node.
    pub migrating: std::collections::BTreeSet<u8>,
    pub is_down: bool,
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u8 {
    key.last().copied().unwrap_or_default()
}
