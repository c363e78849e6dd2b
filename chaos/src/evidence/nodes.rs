//! The state of the servers: the ports that clients talk to, and how often sessions and queues may have ended.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use crate::keys::DATABASES;

/// Only the thread that makes faults changes it.
pub struct Nodes {
    /// Of the server with each database, or in a cluster with the slot that stands for it.
    ports: [AtomicU16; DATABASES as usize],
    is_down: AtomicBool,
    epoch: AtomicU64,
}

impl Nodes {
    pub fn at(port_of: impl Fn(usize) -> u16) -> Self {
        let ports = std::array::from_fn(|database| AtomicU16::new(port_of(database)));
        Self { ports, is_down: AtomicBool::new(false), epoch: AtomicU64::new(0) }
    }

    pub fn port_of(&self, database: u32) -> u16 {
        self.ports[database as usize].load(Ordering::SeqCst)
    }

    /// From now on there may be no server. Sessions and queues end; all earlier replies must still be true afterwards.
    pub fn goes_down(&self) {
        self.begin_epoch();
        self.is_down.store(true, Ordering::SeqCst);
    }

    pub fn is_back_at(&self, port: u16) {
        self.ports.iter().for_each(|own| own.store(port, Ordering::SeqCst));
        self.begin_epoch();
        self.is_down.store(false, Ordering::SeqCst);
    }

    /// From now on another server has this database.
    pub fn moves(&self, database: u32, port: u16) {
        self.ports[database as usize].store(port, Ordering::SeqCst);
        self.begin_epoch();
    }

    /// Notes that sessions may end from now on although no connection is closed.
    pub fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whether sessions may have ended since this epoch.
    pub fn has_changed_since(&self, epoch: u64) -> bool {
        self.is_down() || self.epoch() != epoch
    }
}

#[test]
fn node_is_down_until_it_is_back_at_a_port() {
    let nodes = Nodes::at(|_| 1);
    nodes.goes_down();
    assert!(nodes.is_down());
    nodes.is_back_at(2);
    assert_eq!((nodes.port_of(3), nodes.is_down(), nodes.epoch()), (2, false, 2));
    nodes.moves(2, 7);
    assert_eq!((nodes.port_of(2), nodes.port_of(1), nodes.epoch()), (7, 2, 3));
}
