//! A cluster, and one of its slots that may move.

use support::Server;
use support::cluster::{Cluster, Tag};
use support::migration::Migration;

/// For clusters in which no node shall be considered dead, however busy the machine is.
const CALM_MS: u32 = 15_000;

/// The ways in which a slot moves. `false` where the server cannot.
pub(super) const MOVES: [fn(&Migration<'_>) -> bool; 3] = [
    |migration| {
        migration.go_key_by_key();
        true
    },
    |migration| {
        migration.seize();
        true
    },
    |migration| migration.run_atomically(),
];

/// A slot of the first master, which goes to the second.
pub(super) struct Scene {
    cluster: Cluster,
    pub tag: Tag,
}

impl Scene {
    #[track_caller]
    pub fn start() -> Self {
        Self::configured("")
    }

    #[track_caller]
    pub fn configured(config: &str) -> Self {
        let cluster = Cluster::start(CALM_MS, config);
        let tag = cluster.tag_of(0);
        Self { cluster, tag }
    }

    pub fn key(&self, name: &str) -> String {
        self.tag.key(name)
    }

    /// Returns keys of other slots of the same master, which stay.
    pub fn neighbours(&self, name: &str) -> impl Iterator<Item = String> {
        let stays = self.cluster.tags_of(0).filter(|tag| tag.slot != self.tag.slot);
        stays.map(move |tag| tag.key(name))
    }

    pub fn neighbour(&self, name: &str) -> String {
        self.neighbours(name).next().expect("another tag")
    }

    /// Returns a key of the master to which the slot goes.
    pub fn key_away(&self, name: &str) -> String {
        self.cluster.tag_of(1).key(name)
    }

    pub fn home(&self) -> &Server {
        self.cluster.master(0)
    }

    pub fn away(&self) -> &Server {
        self.cluster.master(1)
    }

    /// Returns the replica of the slot's master.
    pub fn replica(&self) -> &Server {
        self.cluster.replica(0)
    }

    pub fn leaves(&self) -> Migration<'_> {
        Migration { cluster: &self.cluster, slot: self.tag.slot, from: self.home(), to: self.away() }
    }

    pub fn comes_back(&self) -> Migration<'_> {
        Migration { cluster: &self.cluster, slot: self.tag.slot, from: self.away(), to: self.home() }
    }
}
