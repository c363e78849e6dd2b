//! The ways in which a client asks for a lock.

use std::time::Duration;

use support::Reply;

use super::{Claim, Client};
use crate::history::{EXPECTED, Kind};
use crate::scenario::Scenario;

/// More than the limits of most keys.
const MAX_SHARES: usize = 5;

impl<'r> Client<'r> {
    pub(super) fn one_way(&mut self) {
        match self.random.u8(..34) {
            0..6 => self.plain(),
            6..8 => self.several_holds(),
            8..11 => self.in_a_session(),
            11..13 => self.with_quit(),
            13..15 => self.in_one_write(),
            15..18 => self.over_lost_connections(),
            18 => self.in_slices(),
            19 => self.without_end(),
            20..22 => self.repeated(),
            22..24 => self.in_another_form(),
            24..26 => self.several_shares(),
            // A server that becomes a replica forgets blocked clients that want no reply.
            26..28 if !self.run.is(Scenario::Replicas) => self.in_silence(),
            26..30 => self.cut_off(),
            30 | 31 => self.with_few_waiters(),
            32 => self.inspect(),
            // Its request must not be under way any more when it is released.
            _ if self.has_bad_network() => self.plain(),
            _ => self.without_a_lease(),
        }
    }

    /// A claim to some lock. The next request goes to its database.
    pub(super) fn claim(&mut self) -> Claim<'r> {
        let key = self.run.keys.any(&mut self.random);
        self.go_to(key.database);
        let kind = match self.random.u8(..8) {
            0..2 => Kind::Reentrant,
            2..5 => Kind::Share,
            _ => Kind::Mutex,
        };
        let longest = if self.random.bool() { 25 } else { self.run.shorter(500) };
        Claim::new(self.run, key, kind, Some(self.random.u64(5..=longest)))
    }

    /// A BLOCK of any length, apart from those without an end.
    pub(super) fn long_block(&mut self) -> u64 {
        self.random.u64(1..=self.run.shorter(2000))
    }

    fn block(&mut self) -> Option<u64> {
        match self.random.u8(..10) {
            0..2 => None,
            2..5 => Some(self.random.u64(1..50)),
            _ => Some(self.long_block()),
        }
    }

    /// Sends the request once, with any BLOCK. Returns whether the lock was granted.
    fn gets(&mut self, claim: &Claim<'r>) -> bool {
        let block = self.block();
        self.ask(claim.request(block)) == 1
    }

    pub(super) fn hold_if(&mut self, is_granted: bool, claim: &Claim<'r>) {
        if is_granted {
            self.hold(claim);
        }
    }

    fn plain(&mut self) {
        let claim = self.claim();
        if self.gets(&claim) {
            self.hold(&claim);
        } else if self.random.u8(..4) == 0 {
            // A client can always clean up, also if it holds nothing.
            self.release(&claim);
        }
    }

    /// Waits only if few requests do.
    fn with_few_waiters(&mut self) {
        let claim = self.claim();
        let (block, most) = (self.long_block(), self.random.u8(1..4));
        let reply = self.ask(format!("{} MAXWAITERS {most}", claim.request(Some(block))));
        if reply.is_error() && reply.code() == "QUEUEFULL" {
            self.run.counters.count("QUEUEFULL");
        }
        self.hold_if(reply == 1, &claim);
    }

    /// Inspects locks as an operator does, or releases one by force.
    fn inspect(&mut self) {
        let key = self.claim().key;
        let line = match self.random.u8(..4) {
            0 if !key.is_strict => {
                self.run.counters.count("forced releases");
                format!("DEL {}", key.name)
            }
            0 | 1 => format!("LOCK.INFO {}", key.name),
            2 => format!("LOCK.WAITERS {}", key.name),
            _ => ["LOCK.QUEUES", "LOCK.SLOWLOG GET"][self.random.usize(..2)].to_owned(),
        };
        let reply = self.ask(line);
        self.run.counters.count("inspections");
        if reply.is_error() && reply.code() != "WRONGTYPE" && !self.run.is_refusal(&reply) {
            self.run.report(key.database, &key.name, EXPECTED, &format!("the reply is {reply:?}"));
        }
    }

    /// A re-entrant lock, taken several times. Each request counts once, also if it is sent again.
    fn several_holds(&mut self) {
        let claim = Claim { kind: Kind::Reentrant, ..self.claim() };
        if !self.gets(&claim) {
            return;
        }
        let (name, owner, lease) = (&claim.key.name, claim.token, claim.lease_ms.unwrap_or_default());
        let most = self.random.i64(2..5);
        let taken = (2..=most).map(|hold| (format!("LOCK.REENTER {name} {owner} PX {lease} HOLD {hold}"), hold));
        let released = (2..=most).rev().map(|hold| (format!("LOCK.RELEASE {name} {owner} HOLD {hold}"), hold - 1));
        for (line, rest) in taken.chain(released).collect::<Vec<_>>() {
            let mut reply = self.ask(line.clone());
            if reply == Reply::Closed {
                reply = self.ask(line);
            }
            if reply != rest {
                return;
            }
        }
        self.release(&claim);
    }

    fn in_a_session(&mut self) {
        let claim = Claim { session: true, lease_ms: Some(self.random.u64(100..=500)), ..self.claim() };
        if self.gets(&claim) && (self.random.u8(..3) > 0 || self.resets(&claim)) {
            self.hold(&claim);
        }
    }

    /// Closes the connection while it waits, comes back and sends the same request again.
    fn over_lost_connections(&mut self) {
        let mut claim = self.claim();
        if self.random.u8(..4) == 0 {
            (claim.session, claim.lease_ms) = (true, claim.lease_ms.max(Some(100)));
        }
        for _ in 0..self.random.u8(1..4) {
            let block = self.random.u64(100..=self.run.shorter(2000).max(100));
            let patience = Duration::from_micros(self.random.u64(..60_000));
            match self.ask_with_patience(claim.request(Some(block)), Some(patience)) {
                Reply::Int(1) => return self.hold(&claim),
                Reply::Nil => return,
                _ => {}
            }
        }
        let block = self.long_block();
        if self.ask(claim.request(Some(block))) == 1 {
            self.hold(&claim);
        } else if self.random.bool() {
            self.release(&claim);
        }
    }

    /// Waits in slices, each with the same token, so that it keeps its place in the queue.
    fn in_slices(&mut self) {
        let claim = self.claim();
        for _ in 0..20 {
            let slice = self.random.u64(5..40);
            match self.ask(claim.request(Some(slice))) {
                Reply::Int(1) => return self.hold(&claim),
                Reply::Nil => {}
                _ => return,
            }
        }
        self.release(&claim);
    }

    /// Waits without an end, or until its patience ends.
    fn without_end(&mut self) {
        let claim = self.claim();
        let patience = Duration::from_millis(self.long_block());
        let reply = self.ask_with_patience(claim.request(Some(0)), Some(patience));
        self.hold_if(reply == 1, &claim);
    }

    /// The holder of a mutex or a share sends its request again.
    fn repeated(&mut self) {
        let mut claim = self.claim();
        if claim.kind == Kind::Reentrant {
            claim.kind = Kind::Share;
        }
        if self.gets(&claim) {
            let reply = self.ask(claim.request(None));
            self.run.counters.count("repeats by holders");
            self.hold_if(reply == 1, &claim);
        }
    }

    /// A lock without a lease, mostly a share. It is released whatever happens, and never asked for on a connection
    /// that this client closes: a request that arrives after its release would hold the lock for ever.
    fn without_a_lease(&mut self) {
        let mut claim = Claim { lease_ms: None, ..self.claim() };
        if self.random.u8(..4) > 0 {
            claim.kind = Kind::Share;
        }
        if self.gets(&claim) {
            self.run.counters.count("locks without a lease");
            self.hold(&claim);
        } else {
            self.clean_up(&claim);
        }
    }

    /// Takes shares of one lock until it gets no more, each with a token of its own, and releases them one by one.
    fn several_shares(&mut self) {
        let first = self.claim();
        let mut held = Vec::new();
        for _ in 0..MAX_SHARES {
            let claim = Claim::new(self.run, first.key, Kind::Share, Some(self.random.u64(50..500)));
            let block = if held.is_empty() { self.block() } else { None };
            if self.ask(claim.request(block)) != 1 {
                break;
            }
            held.push(claim);
        }
        if held.len() > 1 {
            self.run.counters.count("shares of one client");
        }
        held.iter().for_each(|claim| self.finish(claim));
    }

    /// An exclusive holder asks for a share of its lock, or the holder of a share for the lock alone.
    fn in_another_form(&mut self) {
        let claim = self.claim();
        if !self.gets(&claim) {
            return;
        }
        let command = match claim.kind {
            Kind::Share if self.random.bool() => "ACQUIRE",
            Kind::Share => "REENTER",
            _ => "SHARE",
        };
        let lease = self.random.u64(5..=25);
        let reply = self.ask(format!("LOCK.{command} {} {} PX {lease}", claim.key.name, claim.token));
        if reply.is_error() && reply.code() == "OTHERFORM" {
            self.run.counters.count("OTHERFORM");
            self.hold(&claim);
        } else {
            self.release(&claim);
        }
    }
}
