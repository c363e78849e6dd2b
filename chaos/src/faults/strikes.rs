//! Faults of clients that wait, also in the iteration of the event loop in which a lock is handed over: this thread
//! holds the lock itself, waits until it has waiters, and sends the release and the faults in one write.

use std::time::Instant;

use support::Reply;

use super::Faults;
use crate::keys::Key;
use crate::link::{Link, PATIENCE};

const LEASE_MS: u64 = 3000;
const STRIKES: [&str; 3] = ["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"];

impl Faults<'_> {
    pub(super) fn strike_waiters(&mut self) {
        let key = self.run.keys.any(&mut self.random);
        let Some(mut link) = self.run.connect(key.database, false) else { return };
        for line in self.strikes(key, &mut link) {
            let reply = link.run(&line);
            self.struck(&line, &reply);
        }
    }

    pub(super) fn strike_at_release(&mut self) {
        let (run, token, now) = (self.run, self.run.tokens.fresh(), Instant::now());
        let key = run.keys.any(&mut self.random);
        let Some(mut link) = run.connect(key.database, false) else { return };
        let lease = run.evidence.cut(Some(LEASE_MS), now, now).unwrap_or(LEASE_MS);
        if link.run(&format!("LOCK.ACQUIRE {} {token} PX {lease} BLOCK 1000", key.name)) != 1 {
            return;
        }
        run.rest(self.some_ms(2..60));
        // The release among faults, which mostly come after it.
        let mut lines = self.strikes(key, &mut link);
        lines.retain(|_| self.random.u8(..3) > 0);
        match self.random.u8(..24) {
            0 => {
                run.fault(STRIKES[0]);
                lines.push(STRIKES[0].to_owned());
            }
            1..6 => lines.push(self.pause_line()),
            _ => {}
        }
        let place = if self.random.u8(..4) == 0 { self.random.usize(..=lines.len()) } else { 0 };
        lines.insert(place, format!("LOCK.RELEASE {} {token}", key.name));
        let Some(sent) = link.send(&lines) else { return };
        for line in &lines {
            let Some(reply) = link.receive(PATIENCE) else { return };
            self.struck(line, &reply);
            if line.starts_with("CLIENT PAUSE") {
                self.paused(line, sent, &reply);
            }
        }
    }

    fn strikes(&mut self, key: &Key, link: &mut Link) -> Vec<String> {
        let Reply::List(waiters) = link.run(&format!("LOCK.WAITERS {} COUNT 3", key.name)) else { return Vec::new() };
        let mut strike = |waiter: &Reply| {
            let (id, is_blocked) = (waiter.get("client-id").int(), waiter.get("channel") == Reply::Nil);
            let line = match self.random.u8(..4) {
                // Servers before Redis 8.2 and Valkey 9 crash if CLIENT UNBLOCK meets a client that CLIENT PAUSE
                // suspends. A client that waits for a message is not blocked.
                _ if !is_blocked => format!("CLIENT KILL ID {id}"),
                0 => format!("CLIENT UNBLOCK {id}"),
                1 => format!("CLIENT UNBLOCK {id} TIMEOUT"),
                2 => format!("CLIENT UNBLOCK {id} ERROR"),
                _ => format!("CLIENT KILL ID {id}"),
            };
            self.run.unblocks(id);
            self.run.fault(&line);
            line
        };
        waiters.iter().map(&mut strike).collect()
    }

    fn struck(&self, line: &str, reply: &Reply) {
        let kind = STRIKES.into_iter().find(|kind| line.starts_with(kind));
        kind.filter(|_| matches!(reply, Reply::Int(1..))).into_iter().for_each(|kind| self.run.counters.count(kind));
    }
}
