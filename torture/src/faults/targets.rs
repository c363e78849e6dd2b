//! Faults that meet clients that wait.

use support::Reply;

use super::Disturber;
use crate::keys::Key;
use crate::link::Link;

impl Disturber<'_> {
    /// Unblocks or kills some of those who wait for some lock.
    pub(super) fn strike_waiters(&mut self) {
        let world = self.world;
        let key = world.keys.any(&mut self.random);
        let Some(mut link) = world.connect(key.database, false) else { return };
        let lines: Vec<String> = waiting(key, &mut link).into_iter().map(|id| self.strike(id)).collect();
        for line in lines {
            link.run(&line);
        }
    }

    /// A command that ends the wait of this connection.
    pub(super) fn strike(&mut self, id: i64) -> String {
        let (kind, line) = match self.random.u8(..4) {
            0 => ("CLIENT UNBLOCK", format!("CLIENT UNBLOCK {id}")),
            1 => ("CLIENT UNBLOCK", format!("CLIENT UNBLOCK {id} TIMEOUT")),
            2 => ("CLIENT UNBLOCK", format!("CLIENT UNBLOCK {id} ERROR")),
            _ => ("CLIENT KILL ID", format!("CLIENT KILL ID {id}")),
        };
        self.world.unblocked.add(id);
        self.world.fault(kind, &line);
        line
    }
}

/// The connections of the first who wait for a lock.
pub fn waiting(key: &Key, link: &mut Link) -> Vec<i64> {
    match link.run(&format!("LOCK.WAITERS {} COUNT 3", key.name)) {
        Reply::List(waiters) => waiters.iter().map(|waiter| waiter.get("client-id").int()).collect(),
        _ => Vec::new(),
    }
}
