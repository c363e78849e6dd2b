//! The ways in which a client asks for a lock.

use std::time::Duration;

use support::Reply;

use super::super::EXPECTED;
use super::holding::Grant;
use super::{Answer, Claim, Client, Kind};
use crate::Part;
use crate::evidence::is_put_off;
use crate::scenario::Scenario;

const SAME: &str = "a request that is sent again while its token holds is granted again";
const FORMS: &str = "nothing turns one form of a lock into another";
/// More than the limits of most keys.
const MAX_SHARES: usize = 5;

impl<'r> Client<'r> {
    pub(super) fn one_way(&mut self) {
        match self.random.u8(..34) {
            0..6 => self.plain(),
            6..8 => self.several_holds(),
            8..11 => self.in_a_session(),
            11..13 if self.run.has(Part::Quit) => self.with_quit(),
            11..15 => self.in_one_write(),
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
        let lease =
            if self.random.bool() { self.random.u64(5..=25) } else { self.random.u64(5..=self.run.shorter(500)) };
        Claim::new(self.run, key, kind, Some(lease))
    }

    /// The longest BLOCK in milliseconds, apart from those without an end.
    pub(super) fn max_block(&self) -> u64 {
        self.run.shorter(2000)
    }

    fn block(&mut self) -> Option<u64> {
        match self.random.u8(..10) {
            0..2 => None,
            2..5 => Some(self.random.u64(1..50)),
            _ => Some(self.random.u64(1..=self.max_block())),
        }
    }

    /// Sends the request once.
    pub(super) fn try_once(&mut self, claim: &mut Claim<'r>, block: Option<u64>) -> Grant {
        let line = claim.request(block);
        let answer = self.ask(claim, line, block.unwrap_or(0));
        let grant = self.take_in(claim, &answer);
        if grant == Grant::Granted {
            self.date_grant(claim, &answer);
        }
        grant
    }

    /// The same with any BLOCK. Returns whether the lock was granted.
    fn gets(&mut self, claim: &mut Claim<'r>) -> bool {
        let block = self.block();
        self.try_once(claim, block) == Grant::Granted
    }

    fn plain(&mut self) {
        let mut claim = self.claim();
        if self.gets(&mut claim) {
            self.hold(claim);
        } else if self.random.u8(..4) == 0 {
            // A client can always clean up, also if it holds nothing.
            self.release(&mut claim);
        }
    }

    /// Waits only if few requests do.
    fn with_few_waiters(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(1..=self.max_block());
        let line = format!("{} MAXWAITERS {}", claim.request(Some(block)), self.random.u8(1..4));
        let answer = self.ask(&claim, line, block);
        if answer.has_code("QUEUEFULL") {
            self.run.counters.count("QUEUEFULL");
        } else if self.take_in(&mut claim, &answer) == Grant::Granted {
            self.hold(claim);
        }
    }

    /// Inspects locks as an operator does, or releases one by force.
    fn inspect(&mut self) {
        let claim = self.claim();
        let name = match self.random.u8(..3) {
            0 if !claim.key.is_strict() => {
                self.run.counters.count("forced releases");
                format!("DEL {}", claim.key.name)
            }
            1 => format!("LOCK.INFO {}", claim.key.name),
            2 => format!("LOCK.WAITERS {}", claim.key.name),
            _ => ["LOCK.QUEUES", "LOCK.SLOWLOG GET"][self.random.usize(..2)].to_owned(),
        };
        let answer = self.ask(&claim, name, 0);
        self.run.counters.count("inspections");
        let is_allowed =
            answer.reply == Reply::Closed || answer.has_code("WRONGTYPE") || self.is_explained(&answer.reply);
        if answer.reply.is_error() && !is_allowed {
            self.run.report_lock(claim.key, EXPECTED, &format!("the reply is {:?}", answer.reply));
        }
    }

    /// A re-entrant lock, taken several times.
    fn several_holds(&mut self) {
        let mut claim = self.claim();
        claim.kind = Kind::Reentrant;
        if !self.gets(&mut claim) {
            return;
        }
        let (name, owner, lease) = (&claim.key.name, claim.token, claim.lease_ms.unwrap_or_default());
        let most = self.random.u8(2..5);
        for hold in 2..=most {
            let line = format!("LOCK.REENTER {name} {owner} PX {lease} HOLD {hold}");
            let answer = self.ask_until_answered(&claim, &line);
            self.check_lease(&claim, &answer);
            if !self.has_holds(&claim, hold.into(), &answer) {
                return;
            }
            claim.lengthened(answer.sent, answer.received);
        }
        for hold in (2..=most).rev() {
            let answer = self.ask_until_answered(&claim, &format!("LOCK.RELEASE {name} {owner} HOLD {hold}"));
            if !self.has_holds(&claim, i64::from(hold) - 1, &answer) {
                return;
            }
        }
        self.release(&mut claim);
    }

    /// Sends a request that counts once, and a second time if the connection is closed before the reply.
    fn ask_until_answered(&mut self, claim: &Claim<'_>, line: &str) -> Answer {
        let answer = self.ask(claim, line.to_owned(), 0);
        if answer.reply == Reply::Closed { self.ask(claim, line.to_owned(), 0) } else { answer }
    }

    /// Whether the reply is this number of holds, as it should be.
    fn has_holds(&mut self, claim: &Claim<'r>, holds: i64, answer: &Answer) -> bool {
        let has_holds = answer.reply == holds;
        if !has_holds && answer.reply != Reply::Closed && !is_put_off(&answer.reply) {
            self.released(claim, answer);
        }
        has_holds
    }

    fn in_a_session(&mut self) {
        let mut claim = self.claim();
        (claim.session, claim.lease_ms) = (true, Some(self.random.u64(100..=500)));
        if self.gets(&mut claim) && (self.random.u8(..3) > 0 || self.reset(&claim)) {
            self.hold(claim);
        }
    }

    /// Closes the connection while it waits, comes back and sends the same request again.
    fn over_lost_connections(&mut self) {
        let mut claim = self.claim();
        if self.random.u8(..4) == 0 {
            (claim.session, claim.lease_ms) = (true, claim.lease_ms.max(Some(100)));
        }
        let tries = self.random.u8(1..4);
        for _ in 0..tries {
            let block = self.random.u64(100..=self.max_block());
            let patience = Duration::from_micros(self.random.u64(..60_000));
            let line = claim.request(Some(block));
            if self.send(&[line]).is_none() {
                continue;
            }
            let answer = self.answer(&claim, Some(Duration::from_millis(block)), Some(patience));
            match self.take_in(&mut claim, &answer) {
                Grant::Granted => return self.hold(claim),
                Grant::Refused => return,
                Grant::Unknown => {}
            }
        }
        let block = self.random.u64(1..=self.max_block());
        if self.try_once(&mut claim, Some(block)) == Grant::Granted {
            self.hold(claim);
        } else if self.random.bool() {
            self.release(&mut claim);
        }
    }

    /// Waits in slices, each with the same token, so that it keeps its place in the queue.
    fn in_slices(&mut self) {
        let mut claim = self.claim();
        for _ in 0..20 {
            let slice = self.random.u64(5..40);
            match self.try_once(&mut claim, Some(slice)) {
                Grant::Granted => return self.hold(claim),
                Grant::Refused => {}
                Grant::Unknown => return,
            }
        }
        self.release(&mut claim);
    }

    /// Waits without an end, or until its patience ends.
    fn without_end(&mut self) {
        let mut claim = self.claim();
        let line = claim.request(Some(0));
        let patience = Duration::from_millis(self.random.u64(..self.max_block()));
        if self.send(&[line]).is_none() {
            return;
        }
        let answer = self.answer(&claim, None, Some(patience));
        if self.take_in(&mut claim, &answer) == Grant::Granted {
            self.hold(claim);
        }
    }

    /// The holder of a mutex or a share sends its request again.
    fn repeated(&mut self) {
        let mut claim = self.claim();
        if claim.kind == Kind::Reentrant {
            claim.kind = Kind::Share;
        }
        if !self.gets(&mut claim) {
            return;
        }
        let line = claim.request(None);
        let answer = self.ask(&claim, line, 0);
        let must_hold = claim.has_lease_at(answer.received);
        if must_hold && answer.reply == 1 {
            // It is the same grant: the lease can only have grown.
            self.check_lease(&claim, &answer);
            claim.lengthened(answer.sent, answer.received);
        } else {
            if must_hold && answer.reply != Reply::Closed && !self.is_explained(&answer.reply) {
                self.report(&claim, SAME, &format!("the reply is {:?}", answer.reply));
            }
            if answer.reply != 1 && answer.reply != Reply::Closed {
                claim.may_be_over();
            }
            if self.take_in(&mut claim, &answer) != Grant::Granted {
                return;
            }
        }
        self.run.counters.count("repeats by holders");
        self.hold(claim);
    }

    /// A lock without a lease, mostly a share. It is released whatever happens, and never asked for on a connection
    /// that this client closes: a request that arrives after its release would hold the lock for ever.
    fn without_a_lease(&mut self) {
        let mut claim = self.claim();
        claim.lease_ms = None;
        if self.random.u8(..4) > 0 {
            claim.kind = Kind::Share;
        }
        if self.gets(&mut claim) {
            self.run.counters.count("locks without a lease");
            self.hold(claim);
        } else {
            self.clean_up(claim);
        }
    }

    /// Takes shares of one lock until it gets no more, each with a token of its own, and releases them one by one.
    fn several_shares(&mut self) {
        let first = self.claim();
        let mut held = Vec::new();
        for _ in 0..MAX_SHARES {
            let lease = self.random.u64(50..500);
            let mut claim = Claim::new(self.run, first.key, Kind::Share, Some(lease));
            let block = if held.is_empty() { self.block() } else { None };
            if self.try_once(&mut claim, block) != Grant::Granted {
                break;
            }
            held.push(claim);
        }
        if held.len() > 1 {
            self.run.counters.count("shares of one client");
        }
        held.into_iter().for_each(|claim| self.finish(claim));
    }

    /// An exclusive holder asks for a share of its lock, or the holder of a share for the lock alone.
    fn in_another_form(&mut self) {
        let mut claim = self.claim();
        if !self.gets(&mut claim) {
            return;
        }
        claim.asked_otherwise();
        let command = match claim.kind {
            Kind::Share if self.random.bool() => "ACQUIRE",
            Kind::Share => "REENTER",
            _ => "SHARE",
        };
        let lease = self.random.u64(5..=25);
        let answer = self.ask(&claim, format!("LOCK.{command} {} {} PX {lease}", claim.key.name, claim.token), 0);
        match &answer.reply {
            Reply::Int(1) | Reply::Nil => {
                if claim.has_lease_at(answer.received) {
                    self.report(&claim, FORMS, &format!("it was granted, and then the reply is {:?}", answer.reply));
                }
                // The lease had ended, so it can be held in the other form now.
                claim.may_be_over();
                self.release(&mut claim);
            }
            _ if answer.has_code("OTHERFORM") => {
                self.run.counters.count("OTHERFORM");
                self.was_held(&claim, &answer);
                self.hold(claim);
            }
            Reply::Closed => {}
            other if self.is_explained(other) => {}
            other => self.report(&claim, EXPECTED, &format!("the reply is {other:?}")),
        }
    }
}
