//! A cluster, and one of its slots that may move.

use support::Server;
use support::cluster::{Cluster, Tag};
use support::migration::Migration;

/// For clusters in which no node shall be thought dead, however busy the machine is.
pub(super) const CALM_MS: u32 = 15_000;

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

    /// A key of another slot of the same master, which stays.
    pub fn neighbour(&self, name: &str) -> String {
        self.cluster.tags_of(0).find(|tag| tag.slot != self.tag.slot).expect("another tag").key(name)
    }

    /// Keys of the slots of the same master that stay.
    pub fn keys_of_home(&self, count: usize) -> Vec<String> {
        let stays = self.cluster.tags_of(0).filter(|tag| tag.slot != self.tag.slot);
        stays.take(count).map(|tag| tag.key("stays")).collect()
    }

    /// A key of the master to which the slot goes.
    pub fn key_away(&self, name: &str) -> String {
        self.cluster.tag_of(1).key(name)
    }

    /// A key of another slot.
    pub fn key_elsewhere(&self, name: &str) -> String {
        self.cluster.tag_of(2).key(name)
    }

    pub fn home(&self) -> &Server {
        self.cluster.master(0)
    }

    pub fn away(&self) -> &Server {
        self.cluster.master(1)
    }

    /// Neither the slot's master nor the one to which it goes.
    pub fn third(&self) -> &Server {
        self.cluster.master(2)
    }

    /// The replica of the slot's master.
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
