//! Changes to the slots of a node and to its cluster.

use std::collections::BTreeSet;

use super::Node;
use crate::server::cluster::{Cluster, slot_of};
use crate::server::event_log::{LoggedEvent, Writer};
use crate::server::faults::{self, Fault};
use crate::server::{blocked, channels, node_state, notify};

impl Node {
    /// Makes the server a node of a cluster.
    pub fn join_cluster(self) {
        self.here(|node| node.cluster = Some(Cluster::default()));
    }

    /// Sets whether the cluster is down.
    pub fn set_cluster_down(self, is_down: bool) {
        self.here(|node| node.cluster.as_mut().map(|cluster| cluster.is_down = is_down));
    }

    /// Begins to move a slot to another node.
    pub fn begin_migration(self, slot: u8) {
        self.here(|node| node.cluster.as_mut().map(|cluster| cluster.migrating.insert(slot)));
    }

    /// Gives a slot to another node, and deletes its keys here.
    pub fn lose_slot(self, slot: u8) {
        let keys: Vec<_> = self.here(|node| {
            let cluster = node.cluster.get_or_insert_default();
            cluster.migrating.remove(&slot);
            cluster.elsewhere.insert(slot);
            channels::drop_slot(node, slot);
            node.keyspace.of(0).map(|(key, _)| key.clone()).filter(|key| slot_of(key) == slot).collect()
        });
        for key in keys {
            let tells = self.here(|node| {
                node.keyspace.set(0, &key, None);
                node.note(LoggedEvent::Wrote { db: 0, key: key.clone(), entry: None, writer: Writer::Server });
                node.kind.tells_of_lost_slots()
            });
            if tells {
                notify::key_event(0, "del", &key);
            }
        }
    }

    /// Gives a slot back to this node, without its keys.
    pub fn gain_slot(self, slot: u8) {
        self.here(|node| {
            if let Some(cluster) = &mut node.cluster {
                cluster.elsewhere.remove(&slot);
                cluster.migrating.remove(&slot);
            }
        });
    }

    /// Returns the slots of other nodes.
    pub fn lost_slots(self) -> BTreeSet<u8> {
        self.here(|node| node.cluster.as_ref().map(|cluster| cluster.elsewhere.clone()).unwrap_or_default())
    }

    /// Sends an error to the clients that are blocked on keys of other nodes' slots.
    pub fn redirect(self) {
        node_state::switch_to(self.0);
        if !faults::has(Fault::BlockedNotRedirected) {
            redirect();
        }
    }
}

/// Sends MOVED or CLUSTERDOWN to the clients that are blocked on keys that this node does not serve.
fn redirect() {
    let redirected: Vec<_> = node_state::with(|node| {
        let Some(cluster) = &node.cluster else { return Vec::new() };
        let error = |key: &[u8]| match cluster.is_down {
            true => Some("CLUSTERDOWN The cluster is down"),
            false => cluster.elsewhere.contains(&slot_of(key)).then_some("MOVED 0 127.0.0.1:1"),
        };
        let blocked = node.clients.values().filter_map(|entry| entry.blocked);
        blocked.filter_map(|id| Some((id, error(&node.blocked.get(&id)?.key.1)?))).collect()
    });
    let redirected = redirected.into_iter().filter(|&(id, _)| blocked::dismiss(id));
    redirected.for_each(|(id, error)| blocked::refuse(id, error));
}
