//! Where the server is that clients talk to, and how often it has begun anew.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

/// Changed by the thread that makes faults alone.
pub struct Whereabouts {
    port: AtomicU16,
    away: AtomicBool,
    beginnings: AtomicU64,
}

impl Whereabouts {
    pub fn at(port: u16) -> Self {
        Self { port: AtomicU16::new(port), away: AtomicBool::new(false), beginnings: AtomicU64::new(0) }
    }

    pub fn port(&self) -> u16 {
        self.port.load(Ordering::SeqCst)
    }

    /// From now on nobody may be there. Sessions end with their connections, and lines with those who stand in them; what
    /// was answered before must still be true when there is somebody again.
    pub fn leaves(&self) {
        self.beginnings.fetch_add(1, Ordering::SeqCst);
        self.away.store(true, Ordering::SeqCst);
    }

    pub fn is_back_at(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
        self.away.store(false, Ordering::SeqCst);
    }

    /// All data is loaded again by the same server, which may end sessions, too.
    pub fn reloads(&self) {
        self.beginnings.fetch_add(1, Ordering::SeqCst);
    }

    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::SeqCst)
    }

    /// How often sessions may have ended although their clients did nothing.
    pub fn beginnings(&self) -> u64 {
        self.beginnings.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_is_away_until_it_is_back_somewhere() {
        let server = Whereabouts::at(1);
        server.leaves();
        assert!(server.is_away());
        server.is_back_at(2);
        assert_eq!((server.port(), server.is_away(), server.beginnings()), (2, false, 1));
    }
}
