//! What the clients are to do with their locks: the side of the engine that a measurement writes.

use std::time::Duration;

/// Something has happened to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has read that the lock is its own.
    Granted,
    /// It has read that its release was done.
    Released,
    /// Its rest is over.
    Rested,
    /// All of its cycles are done.
    Cycled,
}

/// What a client shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire,
    Release,
    Rest(Duration),
    /// So many times acquire and release, all sent in one write. Only for a lock that is the client's alone.
    Cycles(u32),
}

/// Orders to clients, followed in turn. What one client has to send after one read goes in one write.
#[derive(Default)]
pub struct Orders(pub(super) Vec<(usize, Action)>);

impl Orders {
    pub fn give(&mut self, client: usize, action: Action) {
        self.0.push((client, action));
    }

    #[cfg(test)]
    pub fn given(&self) -> &[(usize, Action)] {
        &self.0
    }
}

pub trait Workload {
    fn on(&mut self, client: usize, event: Event, orders: &mut Orders);

    /// Whether there is nothing more to wait for.
    fn is_done(&self) -> bool {
        false
    }
}
