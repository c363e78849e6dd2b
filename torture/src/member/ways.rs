//! The ways in which a client asks for a lock.

use std::time::Duration;

use support::Reply;

use crate::Part;
use crate::settings::is_put_off;

use super::holding::Told;
use super::{Answer, Claim, Kind, Member};

/// The longest BLOCK, apart from those for ever.
const LONGEST_BLOCK_MS: u64 = 2000;

impl<'w> Member<'w> {
    /// Does one thing that clients do.
    pub(super) fn one_way(&mut self) {
        match self.random.u8(..31) {
            0..6 => self.plainly(),
            6..8 => self.once_more(),
            8..11 => self.in_a_session(),
            11..13 if self.world.has(Part::Quit) => self.with_quit(),
            11..15 => self.in_one_write(),
            15..18 => self.over_lost_connections(),
            18 => self.in_slices(),
            19 => self.without_end(),
            20..22 => self.twice(),
            22..24 => self.in_another_form(),
            24..26 => self.several_shares(),
            26..28 if !self.world.changes_roles => self.in_silence(),
            26..30 => self.cut_off(),
            // Its request must not be under way any more when it is released.
            _ if self.has_bad_network() => self.plainly(),
            _ => self.without_a_lease(),
        }
    }

    /// A claim to some lock, in whose database the next request is made.
    pub(super) fn claim(&mut self) -> Claim<'w> {
        let key = self.world.keys.any(&mut self.random);
        self.go_to(key.database);
        let kind = match self.random.u8(..8) {
            0..2 => Kind::Reentrant,
            2..5 => Kind::Share,
            _ => Kind::Mutex,
        };
        let lease = if self.random.bool() { self.random.u64(5..=25) } else { self.random.u64(5..=500) };
        Claim::new(self.world, key, kind, Some(lease))
    }

    pub(super) fn block(&mut self) -> Option<u64> {
        match self.random.u8(..10) {
            0..2 => None,
            2..5 => Some(self.random.u64(1..50)),
            _ => Some(self.random.u64(1..=LONGEST_BLOCK_MS)),
        }
    }

    /// Sends the request once and returns what it was told.
    pub(super) fn try_once(&mut self, claim: &mut Claim<'w>, block: Option<u64>) -> Told {
        let line = claim.request(block);
        let answer = self.ask(claim, line, block.unwrap_or(0));
        let told = self.told(claim, &answer);
        if told == Told::Yours {
            self.date_grant(claim, &answer);
        }
        told
    }

    fn plainly(&mut self) {
        let mut claim = self.claim();
        let block = self.block();
        match self.try_once(&mut claim, block) {
            Told::Yours => self.hold(claim),
            // A client may always clean up, and sometimes does where it knows of nothing.
            _ if self.random.u8(..4) == 0 => self.release(&mut claim),
            _ => {}
        }
    }

    /// A re-entrant lock, taken several times.
    fn once_more(&mut self) {
        let mut claim = self.claim();
        claim.kind = Kind::Reentrant;
        let block = self.block();
        if self.try_once(&mut claim, block) != Told::Yours {
            return;
        }
        let Some(lease) = claim.lease_ms else { return };
        let (name, owner) = (&claim.key.name, claim.token);
        let most = self.random.u8(2..5);
        for hold in 2..=most {
            let answer =
                self.ask_until_answered(&claim, &format!("LOCK.REENTER {name} {owner} PX {lease} HOLD {hold}"));
            self.judge(&claim, Some(lease), &answer);
            if !self.another_hold(&mut claim, hold.into(), &answer) {
                return;
            }
            claim.lengthened(self.world, answer.sent, answer.received);
        }
        for hold in (2..=most).rev() {
            let answer = self.ask_until_answered(&claim, &format!("LOCK.RELEASE {name} {owner} HOLD {hold}"));
            if !self.another_hold(&mut claim, i64::from(hold) - 1, &answer) {
                return;
            }
        }
        self.release(&mut claim);
    }

    /// Sends a request that counts once, and once more if the connection is closed in place of an answer.
    fn ask_until_answered(&mut self, claim: &Claim<'w>, line: &str) -> Answer {
        let answer = self.ask(claim, line.to_owned(), 0);
        if answer.reply == Reply::Closed { self.ask(claim, line.to_owned(), 0) } else { answer }
    }

    /// Whether this many holds are there now, as they should be.
    fn another_hold(&mut self, claim: &mut Claim<'w>, holds: i64, answer: &Answer) -> bool {
        if answer.reply != holds {
            if answer.reply != Reply::Closed && !is_put_off(&answer.reply) {
                self.released(claim, answer);
            }
            return false;
        }
        true
    }

    fn in_a_session(&mut self) {
        let mut claim = self.claim().for_session();
        claim.lease_ms = Some(self.random.u64(100..=500));
        let block = self.block();
        if self.try_once(&mut claim, block) == Told::Yours && (self.random.u8(..3) > 0 || self.reset(&claim)) {
            self.hold(claim);
        }
    }

    /// The request and QUIT in one write; what was granted is used from another connection.
    fn with_quit(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(1..=LONGEST_BLOCK_MS);
        let line = claim.request(Some(block));
        let Some(sent) = self.send(&claim, &[line.clone(), "QUIT".to_owned()]) else { return };
        let answer = self.answer(&claim, &line, sent, Some(Duration::from_millis(block)), None);
        let told = self.told(&mut claim, &answer);
        self.hang_up();
        if told == Told::Yours {
            self.hold(claim);
        }
    }

    /// The request and the release in one write.
    fn in_one_write(&mut self) {
        let mut claim = self.claim();
        let block = self.block();
        let line = claim.request(block);
        let Some(sent) = self.send(&claim, &[line.clone(), claim.release_line()]) else { return };
        let wait = Some(Duration::from_millis(block.unwrap_or(0)));
        let answer = self.answer(&claim, &line, sent, wait, None);
        self.told(&mut claim, &answer);
        if self.link.is_some() {
            let answer = self.answer(&claim, "the RELEASE behind it", sent, wait, None);
            self.released(&mut claim, &answer);
        }
    }

    /// Hangs up while it waits, comes back and sends the same request again.
    fn over_lost_connections(&mut self) {
        let mut claim = self.claim();
        if self.random.u8(..4) == 0 {
            claim = claim.for_session();
            claim.lease_ms = claim.lease_ms.max(Some(100));
        }
        let tries = self.random.u8(1..4);
        for _ in 0..tries {
            let block = self.random.u64(100..=LONGEST_BLOCK_MS);
            let patience = Duration::from_micros(self.random.u64(..60_000));
            let line = claim.request(Some(block));
            let Some(sent) = self.send(&claim, std::slice::from_ref(&line)) else { continue };
            let answer = self.answer(&claim, &line, sent, Some(Duration::from_millis(block)), Some(patience));
            match self.told(&mut claim, &answer) {
                Told::Yours => return self.hold(claim),
                Told::NotYours => return,
                Told::Unknown => {}
            }
        }
        let block = self.random.u64(1..=LONGEST_BLOCK_MS);
        match self.try_once(&mut claim, Some(block)) {
            Told::Yours => self.hold(claim),
            _ if self.random.bool() => self.release(&mut claim),
            _ => {}
        }
    }

    /// Waits in slices, each with the same token, so that it keeps its place.
    fn in_slices(&mut self) {
        let mut claim = self.claim();
        for _ in 0..20 {
            let slice = self.random.u64(5..40);
            match self.try_once(&mut claim, Some(slice)) {
                Told::Yours => return self.hold(claim),
                Told::NotYours => {}
                Told::Unknown => return,
            }
        }
        self.release(&mut claim);
    }

    /// Waits for ever, or until its patience ends.
    fn without_end(&mut self) {
        let mut claim = self.claim();
        let line = claim.request(Some(0));
        let patience = Duration::from_millis(self.random.u64(..LONGEST_BLOCK_MS));
        let Some(sent) = self.send(&claim, std::slice::from_ref(&line)) else { return };
        let answer = self.answer(&claim, &line, sent, None, Some(patience));
        if self.told(&mut claim, &answer) == Told::Yours {
            self.hold(claim);
        }
    }
}
