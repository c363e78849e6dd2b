//! The end of a history: what must be true after all clients have disconnected.

use redis_lock::host::entry_count;
use redis_lock::server::{Keyspace, Node};

use super::{CLIENTS, CRON_MS, NOTICED_MS, Play, SETTLED_MS};
use crate::checker::Verdict;
use crate::step::{Knob, LOCKS, SlotFate, Step};

impl Play {
    /// Disconnects all clients, and checks that the module has kept nothing.
    pub(super) fn come_to_rest(&mut self) -> Verdict {
        self.turn()?;
        self.master.set_cluster_down(false);
        self.cluster_is_down = false;
        for lock in 0..LOCKS {
            self.move_slot(lock, SlotFate::Returns)?;
        }
        self.step(&Step::Fence(None))?;
        self.operate("CLIENT UNPAUSE");
        self.paused_until = 0;
        let suspension = self.stalls.suspension(self.time);
        self.pass((NOTICED_MS + SETTLED_MS + 100).max(suspension.most_ms() + SETTLED_MS))?;
        self.check_copy(self.shadow, "the AOF")?;
        self.checker.check_answered()?;
        for client in 0..CLIENTS {
            self.step(&Step::HangUp(client))?;
        }
        self.pass(2000)?;
        // While the recovery period is set, the module watches the event loop although it has no work.
        self.configure(Knob::RecoveryMs, 0)?;
        self.pass(CRON_MS)?;
        if let Some(replica) = self.replica {
            self.replicate(self.backlog.len());
            self.check_copy(replica, "the replica")?;
        }
        self.check_copy(self.shadow, "the AOF")?;
        let left = self.master.with_module(entry_count);
        if left > 0 {
            return Err(format!("everybody has left, and the module remembers {left} things"));
        }
        let now = ["waiters", "waiters_notified", "contended_locks", "longest_wait_ms", "sessions"];
        let is_now = |name: &str| now.contains(&name);
        if let Some((name, count)) = self.master.info().into_iter().find(|(name, count)| is_now(name) && *count > 0) {
            return Err(format!("everybody has left, and INFO counts {count} {name}"));
        }
        match self.master.next_wake() {
            Some(wake) => Err(format!("everybody has left, and the module wakes at {wake}")),
            None => Ok(()),
        }
    }

    /// Checks that a copy of the master has the same keys, except for expired ones.
    pub(super) fn check_copy(&self, copy: Node, what: &str) -> Verdict {
        let now = self.master.now_ms();
        let shown = |keyspace: Keyspace| {
            let alive = keyspace.all().filter(|(_, _, entry)| !entry.is_over(now));
            alive.map(|(db, key, entry)| (db, key.clone(), entry.clone())).collect::<Vec<_>>()
        };
        let (master, copy) = (shown(self.master.keyspace()), shown(copy.keyspace()));
        if master == copy { Ok(()) } else { Err(format!("the master has {master:?}, and {what} {copy:?}")) }
    }
}
