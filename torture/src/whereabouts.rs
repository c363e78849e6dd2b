//! Where the servers are that clients talk to, and how often they have begun anew.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use crate::keys::DATABASES;

/// Changed by the thread that makes faults alone.
pub struct Whereabouts {
    /// Of the server that has a database, or in a cluster the slot that is in its place.
    ports: [AtomicU16; DATABASES as usize],
    away: AtomicBool,
    beginnings: AtomicU64,
}

impl Whereabouts {
    pub fn at(port_of: impl Fn(usize) -> u16) -> Self {
        let ports = std::array::from_fn(|database| AtomicU16::new(port_of(database)));
        Self { ports, away: AtomicBool::new(false), beginnings: AtomicU64::new(0) }
    }

    pub fn port_of(&self, database: u32) -> u16 {
        self.ports[database as usize].load(Ordering::SeqCst)
    }

    /// From now on nobody may be there. Sessions end with their connections, and lines with those who stand in them; what
    /// was answered before must still be true when there is somebody again.
    pub fn leaves(&self) {
        self.begins_anew();
        self.away.store(true, Ordering::SeqCst);
    }

    pub fn is_back_at(&self, port: u16) {
        for own in &self.ports {
            own.store(port, Ordering::SeqCst);
        }
        self.begins_anew();
        self.away.store(false, Ordering::SeqCst);
    }

    /// From now on another server has this.
    pub fn moves(&self, database: u32, port: u16) {
        self.ports[database as usize].store(port, Ordering::SeqCst);
        self.begins_anew();
    }

    /// Something begins that may end sessions, although nobody leaves.
    pub fn begins_anew(&self) {
        self.beginnings.fetch_add(1, Ordering::SeqCst);
    }

    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    /// How often sessions may have ended although their clients did nothing.
    pub fn beginnings(&self) -> u64 {
        self.beginnings.load(Ordering::SeqCst)
    }

    /// Whether that has happened again since it was so often, or is about to.
    pub fn has_begun_since(&self, beginnings: u64) -> bool {
        self.is_away() || self.beginnings() != beginnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_away_until_it_is_back_somewhere() {
        let server = Whereabouts::at(|_| 1);
        server.leaves();
        assert!(server.is_away());
        server.is_back_at(2);
        assert_eq!((server.port_of(3), server.is_away(), server.beginnings()), (2, false, 2));
    }

    #[test]
    fn what_moves_is_elsewhere_and_the_rest_is_not() {
        let server = Whereabouts::at(|_| 1);
        server.moves(2, 7);
        assert_eq!((server.port_of(2), server.port_of(1), server.beginnings()), (7, 1, 1));
    }
}
