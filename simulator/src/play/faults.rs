//! The faults of servers.

use std::rc::Rc;

use redis_lock::host::{set_batch, view};
use redis_lock::server::{Keyspace, Node, Unnoticed, slot_of};

use super::{CLIENTS, CRON_MS, Client, ELECTION_MS, NOTICED_MS, Play, SETTLED_MS, SLOT_CHECK_MS, STALL_MS};
use crate::checker::Verdict;
use crate::request::key_of;
use crate::step::{Change, Setting, SlotFate};

impl Play {
    pub(super) fn stall(&mut self, ms: i64, change: Change) -> Verdict {
        self.tally.faults.stalls += 1;
        self.turn()?;
        let unnoticed = match change {
            Change::Nothing => None,
            Change::NoReplicas => Some(Unnoticed::NoReplicas),
            Change::Replaced => Some(Unnoticed::Replaced),
        };
        match (&mut self.noticed_at, unnoticed) {
            // The server's cron counts its own iterations. A long iteration counts as one.
            (Some(at), _) => *at += (ms - CRON_MS).max(0),
            (None, Some(unnoticed)) if ms >= 1000 => {
                self.master.change_unnoticed(unnoticed);
                self.noticed_at = Some(self.time + ms + NOTICED_MS);
            }
            _ => {}
        }
        self.advance(ms);
        if ms >= STALL_MS {
            self.unsettled_until = self.time + SETTLED_MS;
        } else if self.unsettled_until > self.time - ms {
            self.unsettled_until += ms;
        }
        self.obstructed_at = self.obstructed_at.max(self.time);
        self.stalled_at = self.stalled_at.max(self.time);
        self.stalls.stall(ms, self.time);
        // After the stall, the server first reads what clients send now.
        self.is_thawing = true;
        Ok(())
    }

    /// The server is a replica for some time. It knows its new role immediately.
    pub(super) fn demote(&mut self, ms: i64) -> Verdict {
        if self.noticed_at.is_none() && self.replica_until.is_none() {
            self.turn()?;
            self.master.become_replica();
            self.note_role();
            self.replica_until = Some(self.time + ms);
        }
        self.turn()
    }

    pub(super) fn note_role(&mut self) {
        if self.master.is_replica() {
            self.stalls.demote();
        }
    }

    pub(super) fn replicate(&mut self, units: usize) {
        let Some(replica) = self.replica else { return };
        for _ in 0..units {
            if let Some(unit) = self.backlog.pop_front() {
                replica.replay(&unit);
            }
        }
        replica.turn();
        replica.event_log();
    }

    /// The replica becomes the master. Clients have to connect to it.
    pub(super) fn fail_over(&mut self, planned: bool) -> Verdict {
        let Some(replica) = self.replica else { return Ok(()) };
        self.tally.faults.failovers += 1;
        if planned {
            self.pass(1)?;
            self.replicate(self.backlog.len());
            self.check_copy(replica, "the replica")?;
        }
        self.backlog.clear();
        let old = self.master;
        old.restart(Keyspace::default());
        old.become_replica();
        old.event_log();
        replica.become_master();
        replica.event_log();
        self.start_over(replica, replica.keyspace());
        self.replica = Some(old);
        old.load(self.master.keyspace());
        old.event_log();
        Ok(())
    }

    /// The server stops, and starts again with the keys of its AOF, or with none.
    pub(super) fn restart(&mut self, has_log: bool) -> Verdict {
        self.tally.faults.restarts += 1;
        self.turn()?;
        self.check_copy(self.shadow, "the AOF")?;
        let keyspace = if has_log {
            self.shadow.keyspace()
        } else {
            self.backlog.clear();
            self.replica.iter().for_each(|replica| {
                replica.load(Keyspace::default()); // It synchronizes with the master.
                replica.event_log();
            });
            Keyspace::default()
        };
        self.master.restart(keyspace.clone());
        self.start_over(self.master, keyspace);
        if self.master.is_replica() {
            // A replica stays a replica until it is promoted.
            self.note_role();
            self.replica_until = Some(self.time + ELECTION_MS);
        }
        Ok(())
    }

    /// Another process is the master.
    pub(super) fn start_over(&mut self, master: Node, keyspace: Keyspace) {
        self.checker.fails();
        self.master = master;
        self.master.with_module(|| set_batch(self.history.batch));
        self.master.watch(|| Rc::new(view()));
        self.master.event_log();
        self.master.cron(CRON_MS);
        self.clients = vec![Client::default(); usize::from(CLIENTS)];
        self.checker.start_over(&keyspace);
        self.shadow.load(keyspace);
        self.master.set_fence(None);
        (self.fenced, self.noticed_at, self.replica_until) = (false, None, None);
        (self.paused_until, self.unsettled_until, self.is_thawing) = (0, 0, false);
        self.stalls.begin(self.time);
        self.obstructed_at = self.obstructed_at.max(self.time);
        self.stalled_at = self.stalled_at.max(self.time);
    }

    pub(super) fn move_slot(&mut self, lock: u8, fate: SlotFate) -> Verdict {
        if self.history.setting != Setting::Cluster {
            return Ok(());
        }
        self.tally.faults.slots += 1;
        self.observe()?;
        self.check_copy(self.shadow, "the AOF")?;
        let slot = slot_of(&key_of(lock));
        match fate {
            SlotFate::Leaves => self.master.lose_slot(slot),
            SlotFate::Migrates => self.master.begin_migration(slot),
            SlotFate::Returns if self.cluster_is_down => return Ok(()),
            SlotFate::Returns => {
                // A slot does not return before its waiters were notified that it has left.
                self.master.redirect();
                self.pass(SLOT_CHECK_MS)?;
                self.master.gain_slot(slot);
            }
        }
        self.checker.moves_slot(slot, fate);
        self.obstructed_at = self.obstructed_at.max(self.time);
        // The simulated AOF does not record the keys that have left with the slot.
        self.shadow.load(self.master.keyspace());
        Ok(())
    }
}
