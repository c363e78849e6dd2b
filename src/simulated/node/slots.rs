//! The slots of a node of a cluster, as they come and go.

use std::collections::BTreeSet;

use super::Node;
use crate::server::cluster::{Cluster, slot_of};
use crate::server::journal::{Note, Writer};
use crate::server::{blocked, channels, doors, world};

impl Node {
    /// The server is a node of a cluster from now on.
    pub fn join_cluster(self) {
        self.here(|world| world.cluster = Some(Cluster::default()));
    }

    /// The cluster is down, or up again.
    pub fn set_cluster_down(self, is_down: bool) {
        self.here(|world| world.cluster.as_mut().map(|cluster| cluster.is_down = is_down));
    }

    /// A slot begins to move to another node.
    pub fn begin_migration(self, slot: u8) {
        self.here(|world| world.cluster.as_mut().map(|cluster| cluster.migrating.insert(slot)));
    }

    /// A slot is another node's, and its keys with it.
    pub fn lose_slot(self, slot: u8) {
        let keys: Vec<_> = self.here(|world| {
            let cluster = world.cluster.get_or_insert_default();
            cluster.migrating.remove(&slot);
            cluster.elsewhere.insert(slot);
            channels::leave(world, slot);
            world.keyspace.of(0).map(|(key, _)| key.clone()).filter(|key| slot_of(key) == slot).collect()
        });
        for key in keys {
            let tells = self.here(|world| {
                world.keyspace.set(0, &key, None);
                world.note(Note::Wrote { db: 0, key: key.clone(), entry: None, writer: Writer::Server });
                world.kind.tells_of_lost_slots()
            });
            if tells {
                doors::tell(|doors| (doors.key_event)(0, "del", &key));
            }
        }
    }

    /// A slot is this node's again.
    pub fn gain_slot(self, slot: u8) {
        self.here(|world| {
            if let Some(cluster) = &mut world.cluster {
                cluster.elsewhere.remove(&slot);
                cluster.migrating.remove(&slot);
            }
        });
    }

    /// Slots that are other nodes'.
    pub fn lost_slots(self) -> BTreeSet<u8> {
        self.here(|world| world.cluster.as_ref().map(|cluster| cluster.elsewhere.clone()).unwrap_or_default())
    }

    /// The server tells clients that are blocked for slots that are gone.
    pub fn redirect(self) {
        world::switch_to(self.0);
        redirect();
    }
}

/// Tells clients that are blocked on keys which are not served here where to go.
fn redirect() {
    let told: Vec<_> = world::with(|world| {
        let Some(cluster) = &world.cluster else { return Vec::new() };
        let error = |key: &[u8]| match cluster.is_down {
            true => Some("CLUSTERDOWN The cluster is down"),
            false => cluster.elsewhere.contains(&slot_of(key)).then_some("MOVED 0 127.0.0.1:1"),
        };
        let blocked = world.clients.values().filter_map(|entry| entry.blocked);
        blocked.filter_map(|id| Some((id, error(&world.blocked.get(&id)?.key.1)?))).collect()
    });
    let told = told.into_iter().filter(|&(id, _)| blocked::dismiss(id));
    told.for_each(|(id, error)| blocked::refuse(id, error));
}
