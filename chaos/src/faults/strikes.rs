//! Faults of clients that wait, also in the iteration of the event loop in which a lock is handed over: this thread
//! holds the lock itself, waits until it has waiters, and sends the release and the faults in one write.

use std::time::{Duration, Instant};

use support::Reply;

use super::Faults;
use crate::Part;
use crate::keys::Key;
use crate::link::{Link, PATIENCE};
use crate::run::Run;
use crate::token::Token;

const LEASE_MS: u64 = 3000;
/// The names of the counters, and the beginnings of the lines.
const STRIKES: [&str; 3] = ["CLIENT KILL TYPE normal", "CLIENT KILL ID", "CLIENT UNBLOCK"];

/// A connection that waits.
#[derive(Clone, Copy)]
struct Target {
    id: i64,
    /// It waits for a reply, not for a message.
    is_blocked: bool,
}

impl Faults<'_> {
    /// Unblocks or kills some of the waiters of a lock.
    pub(super) fn strike_waiters(&mut self) {
        let key = self.run.keys.any(&mut self.random);
        let Some(mut link) = self.run.connect(key.database, false) else { return };
        for target in waiters(key, &mut link) {
            let line = self.strike(target);
            let reply = link.run(&line);
            self.struck(&line, &reply);
        }
    }

    pub(super) fn strike_at_release(&mut self) {
        let run = self.run;
        let key = run.keys.any(&mut self.random);
        let Some(mut link) = run.connect(key.database, false) else { return };
        let token = run.tokens.fresh();
        if !takes(run, key, token, &mut link) {
            return;
        }
        run.rest(Duration::from_millis(self.random.u64(2..60)));
        let targets = waiters(key, &mut link);
        let lines = self.lines(key, token, &targets);
        let Some(sent) = link.send(&lines) else { return };
        for line in &lines {
            let Some(reply) = link.receive(PATIENCE) else { return };
            self.struck(line, &reply);
            if line.starts_with("CLIENT PAUSE") {
                self.paused(&link, line, sent, &reply);
            }
        }
    }

    /// The release among faults, which mostly come after it.
    fn lines(&mut self, key: &Key, token: Token, targets: &[Target]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for &target in targets {
            if self.random.u8(..3) > 0 {
                lines.push(self.strike(target));
            }
        }
        match self.random.u8(..24) {
            0 => {
                self.run.fault(STRIKES[0]);
                lines.push(STRIKES[0].to_owned());
            }
            1..6 if self.run.has(Part::Pauses) => lines.push(self.pause_line()),
            _ => {}
        }
        let place = if self.random.u8(..4) == 0 { self.random.usize(..=lines.len()) } else { 0 };
        lines.insert(place, format!("LOCK.RELEASE {} {token}", key.name));
        lines
    }

    /// Counts a strike that has met a client.
    fn struck(&self, line: &str, reply: &Reply) {
        let kind = STRIKES.into_iter().find(|kind| line.starts_with(kind));
        if let Some(kind) = kind.filter(|_| matches!(reply, Reply::Int(1..))) {
            self.run.counters.count(kind);
        }
    }

    /// A command that ends the wait of this connection.
    fn strike(&mut self, Target { id, is_blocked }: Target) -> String {
        let line = match self.random.u8(..4) {
            // Servers before Redis 8.2 and Valkey 9 crash if CLIENT UNBLOCK meets a client that CLIENT PAUSE suspends.
            _ if !is_blocked => format!("CLIENT KILL ID {id}"),
            0 => format!("CLIENT UNBLOCK {id}"),
            1 => format!("CLIENT UNBLOCK {id} TIMEOUT"),
            2 => format!("CLIENT UNBLOCK {id} ERROR"),
            _ => format!("CLIENT KILL ID {id}"),
        };
        self.run.history.unblocks(id);
        self.run.fault(&line);
        line
    }
}

/// Takes the lock, perhaps after a while.
fn takes(run: &Run, key: &Key, token: Token, link: &mut Link) -> bool {
    let now = Instant::now();
    let lease = run.evidence.cut(Some(LEASE_MS), now, now).unwrap_or(LEASE_MS);
    link.run(&format!("LOCK.ACQUIRE {} {token} PX {lease} BLOCK 1000", key.name)) == 1
}

/// The connections of the first waiters of a lock.
fn waiters(key: &Key, link: &mut Link) -> Vec<Target> {
    let target =
        |waiter: &Reply| Target { id: waiter.get("client-id").int(), is_blocked: waiter.get("channel") == Reply::Nil };
    match link.run(&format!("LOCK.WAITERS {} COUNT 3", key.name)) {
        Reply::List(waiters) => waiters.iter().map(target).collect(),
        _ => Vec::new(),
    }
}
