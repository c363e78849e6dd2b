//! The slots of a cluster.

/// The slots, as a node of a cluster knows them. The slot of a key is the key's last byte that is not `}`, so that a key and its
/// sibling keys have the same slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    /// The slots of other nodes.
    pub elsewhere: std::collections::BTreeSet<u8>,
    /// The slots that move to another node.
    pub migrating: std::collections::BTreeSet<u8>,
    pub is_down: bool,
}

impl Cluster {
    /// Returns the line of this node in the reply to CLUSTER NODES.
    pub(super) fn own_line(&self) -> String {
        let own = (0..=u8::MAX).filter(|slot| !self.elsewhere.contains(slot)).map(|slot| slot.to_string());
        let leaving = self.migrating.iter().map(|slot| format!("[{slot}->-other]"));
        let slots: Vec<_> = own.chain(leaving).collect();
        format!("this 127.0.0.1:1@2 myself,master - 0 0 1 connected {}", slots.join(" "))
    }
}

/// Returns `true`: a simulated server can become a node of a cluster, and its slots can move.
pub fn is_in_cluster() -> bool {
    true
}

/// Returns the slot of a key, in the type that the module uses.
pub fn hash_slot(key: &[u8]) -> u16 {
    slot_of(key).into()
}

/// Returns the slot of a key.
pub fn slot_of(key: &[u8]) -> u8 {
    key.iter().rev().copied().find(|byte| *byte != b'}').unwrap_or_default()
}
