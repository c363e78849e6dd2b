//! Faults in the very round of the server's loop in which a lock is handed over: this thread holds the lock itself, waits
//! until others stand in line, and sends the release and the faults in one write.

use std::time::{Duration, Instant};

use support::Reply;

use super::Disturber;
use super::targets::{Target, waiting};
use crate::Part;
use crate::keys::Key;
use crate::ledger::{Form, Hold};
use crate::link::Link;
use crate::token::Token;
use crate::world::World;

const LEASE_MS: u64 = 3000;
const LIMIT: Duration = Duration::from_secs(20);

impl Disturber<'_> {
    pub(super) fn strike_at_release(&mut self) {
        let world = self.world;
        let key = world.keys.any(&mut self.random);
        let Some(mut link) = world.connect(key.database, false) else { return };
        let token = world.mint.fresh();
        let asked = Instant::now();
        let Some(from) = take(world, key, token, &mut link) else { return };
        world.ledger.note(key.number, from, format!("the maker of faults, {token}, is told that it holds"));
        world.rest(Duration::from_millis(self.random.u64(2..60)));
        let targets = waiting(key, &mut link);
        let lines = self.lines(key, token, &targets);
        let Some(until) = link.send(&lines) else { return };
        world.ledger.note(key.number, until, format!("the maker of faults sends {}", lines.join(", ")));
        for line in &lines {
            let Some(reply) = link.receive(LIMIT) else { return };
            self.struck(line, &reply);
            if line.starts_with("CLIENT PAUSE") {
                self.paused(&link, line, until, &reply);
            }
            if line.starts_with("LOCK.RELEASE") {
                let lease = world.settings.cut(Some(LEASE_MS), asked, Instant::now());
                let has_lease = lease.is_some_and(|ms| asked.elapsed() < Duration::from_millis(ms));
                let in_time = has_lease && !world.flushes.any_since(asked);
                self.check(key, Hold { token, form: Form::Alone, from, until, one_request: true }, &reply, in_time);
            }
        }
    }

    /// The release among faults, which mostly come behind it.
    fn lines(&mut self, key: &Key, token: Token, targets: &[Target]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for &target in targets {
            if self.random.u8(..3) > 0 {
                lines.push(self.strike(target));
            }
        }
        match self.random.u8(..24) {
            0 => {
                let line = "CLIENT KILL TYPE normal";
                self.world.note_fault(line);
                lines.push(line.to_owned());
            }
            1..6 if self.world.has(Part::Pauses) => lines.push(self.pause_line()),
            _ => {}
        }
        let place = if self.random.u8(..4) == 0 { self.random.usize(..=lines.len()) } else { 0 };
        lines.insert(place, format!("LOCK.RELEASE {} {token}", key.name));
        lines
    }

    fn check(&self, key: &Key, hold: Hold, reply: &Reply, in_time: bool) {
        let world = self.world;
        if *reply == 0 {
            if let Some((rule, what)) = world.ledger.confirm(key.number, hold) {
                world.charge(key, rule, &what);
            }
        } else if in_time && *reply != Reply::Closed {
            world.charge(key, "a holder can release", &format!("{}: it was told {reply:?}", hold.token));
        }
    }
}

/// Takes the lock and returns when it was told so.
fn take(world: &World, key: &Key, token: Token, link: &mut Link) -> Option<Instant> {
    let now = Instant::now();
    let lease = world.settings.cut(Some(LEASE_MS), now, now)?;
    link.send(&[format!("LOCK.ACQUIRE {} {token} PX {lease} BLOCK 1000", key.name)])?;
    (link.receive(LIMIT)? == 1).then(Instant::now)
}
