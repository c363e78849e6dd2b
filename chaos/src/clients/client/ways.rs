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
        match self.random.u8(..32) {
            0..8 => self.plain(),
            8..10 => self.several_holds(),
            10..13 => self.in_a_session(),
            13..17 => self.in_one_write(),
            17..20 => self.again_and_again(),
            20..22 => self.repeated(),
            22..24 => self.in_another_form(),
            24..26 => self.several_shares(),
            // A server that becomes a replica forgets blocked clients that want no reply.
            26..28 if !self.run.is(Scenario::Replicas) => self.in_silence(),
            26..30 => self.cut_off(),
            30 => self.inspect(),
            // Its request must not be under way any more when it is released.
            _ if self.has_bad_network() => self.plain(),
            _ => self.without_a_lease(),
        }
    }

    /// A claim to some lock. The next request goes to its database.
    pub(super) fn claim(&mut self) -> Claim<'r> {
        let key = self.run.keys.any(&mut self.random);
        self.go_to(key.database);
        let longest = if self.random.bool() { 25 } else { self.run.shorter(500) };
        let lease = self.random.u64(5..=longest);
        Claim::any(self.run, key, lease, &mut self.random)
    }

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

    fn gets(&mut self, claim: &Claim<'r>) -> bool {
        let block = self.block();
        let is_short = block.is_some() && self.random.u8(..6) == 0;
        let most = if is_short { format!(" MAXWAITERS {}", self.random.u8(1..4)) } else { String::new() };
        let reply = self.ask(claim.request(block) + &most);
        if reply.is_error() && reply.code() == "QUEUEFULL" {
            self.run.counters.count("QUEUEFULL");
        }
        reply == 1
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

    /// Sends the same request again and again, so that it keeps its place in the queue: when its wait has timed out, or
    /// when it has closed the connection because it has no patience, also with a wait without an end.
    fn again_and_again(&mut self) {
        let mut claim = self.claim();
        if self.random.u8(..4) == 0 {
            (claim.session, claim.lease_ms) = (true, claim.lease_ms.max(Some(100)));
        }
        for _ in 0..self.random.u8(1..8) {
            let patience = self.random.bool().then(|| Duration::from_micros(self.random.u64(..60_000)));
            let block =
                if patience.is_none() { self.random.u64(5..40) } else { self.random.u64(..2) * self.long_block() };
            if self.ask_with_patience(claim.request(Some(block)), patience) == 1 {
                return self.hold(&claim);
            }
        }
        if self.random.bool() {
            self.release(&claim);
        }
    }

    fn repeated(&mut self) {
        let claim = self.claim();
        if self.gets(&claim) {
            let reply = self.ask(claim.request(None));
            self.run.counters.count("repeats by holders");
            if reply == 1 {
                self.hold(&claim);
            }
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
