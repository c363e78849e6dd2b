//! Slots.

/// What a node of a cluster knows of slots. A key's slot is the number of its last byte that is no brace, so that related names
/// fall together.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// Slots that are other nodes'.
    pub elsewhere: std::collections::BTreeSet<u8>,
    /// Slots on their way to another node.
    pub migrating: std::collections::BTreeSet<u8>,
    pub is_down: bool,
}

impl Cluster {
    /// What the node says of itself in the reply to CLUSTER NODES.
    pub(super) fn own_line(&self) -> String {
        let own = (0..=u8::MAX).filter(|slot| !self.elsewhere.contains(slot)).map(|slot| slot.to_string());
        let leaving = self.migrating.iter().map(|slot| format!("[{slot}->-other]"));
        let slots: Vec<_> = own.chain(leaving).collect();
        format!("this 127.0.0.1:1@2 myself,master - 0 0 1 connected {}", slots.join(" "))
    }
}

/// Whether the server is a node of a cluster: its slots may leave.
pub fn is_in_cluster() -> bool {
    true
}

/// The slot of a key, as the module counts them.
pub fn hash_slot(key: &[u8]) -> u16 {
    slot_of(key).into()
}

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u8 {
    key.iter().rev().copied().find(|byte| *byte != b'}').unwrap_or_default()
}
