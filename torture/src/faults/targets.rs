//! Faults that meet clients that wait.

use support::Reply;

use super::Disturber;
use crate::keys::Key;
use crate::link::Link;

/// How the figures call what clients that wait are met by, and how the lines begin.
const STRIKES: [&str; 3] = ["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"];

impl Disturber<'_> {
    /// Unblocks or kills some of those who wait for some lock.
    pub(super) fn strike_waiters(&mut self) {
        let world = self.world;
        let key = world.keys.any(&mut self.random);
        let Some(mut link) = world.connect(key.database, false) else { return };
        let lines: Vec<String> = waiting(key, &mut link).into_iter().map(|target| self.strike(target)).collect();
        for line in lines {
            let reply = link.run(&line);
            self.struck(&line, &reply);
        }
    }

    /// Counts a strike that has met somebody.
    pub(super) fn struck(&self, line: &str, reply: &Reply) {
        let kind = STRIKES.into_iter().find(|kind| line.starts_with(kind));
        if let Some(kind) = kind.filter(|_| matches!(reply, Reply::Int(1..))) {
            self.world.figures.fault(kind);
        }
    }

    /// A command that ends the wait of this connection.
    pub(super) fn strike(&mut self, Target { id, is_blocked }: Target) -> String {
        let line = match self.random.u8(..4) {
            // Servers before Redis 8.2 and Valkey 9 crash if CLIENT UNBLOCK meets a client that CLIENT PAUSE holds up.
            _ if !is_blocked => format!("CLIENT KILL ID {id}"),
            0 => format!("CLIENT UNBLOCK {id}"),
            1 => format!("CLIENT UNBLOCK {id} TIMEOUT"),
            2 => format!("CLIENT UNBLOCK {id} ERROR"),
            _ => format!("CLIENT KILL ID {id}"),
        };
        self.world.unblocked.add(id);
        self.world.note_fault(&line);
        line
    }
}

/// A connection that waits.
#[derive(Clone, Copy)]
pub struct Target {
    id: i64,
    /// It is not told by message.
    is_blocked: bool,
}

/// The connections of the first who wait for a lock.
pub fn waiting(key: &Key, link: &mut Link) -> Vec<Target> {
    let target =
        |waiter: &Reply| Target { id: waiter.get("client-id").int(), is_blocked: waiter.get("channel") == Reply::Nil };
    match link.run(&format!("LOCK.WAITERS {} COUNT 3", key.name)) {
        Reply::List(waiters) => waiters.iter().map(target).collect(),
        _ => Vec::new(),
    }
}
