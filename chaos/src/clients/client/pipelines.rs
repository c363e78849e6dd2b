//! Several commands in one write: requests among commands that change the replies of a connection, and pipelines that
//! are cut off.

use std::time::Duration;

use support::Reply;

use super::super::EXPECTED;
use super::holding::Grant;
use super::{Claim, Client};
use crate::link::Link;

const ONE_REPLY: &str = "each request has one reply, or none where the client wants none";

impl<'r> Client<'r> {
    /// The request and QUIT in one write; a lock that is granted is used from another connection.
    pub(super) fn with_quit(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(1..=self.max_block());
        let line = claim.request(Some(block));
        if self.send(&[line, "QUIT".to_owned()]).is_none() {
            return;
        }
        let answer = self.answer(&claim, Some(Duration::from_millis(block)), None);
        let grant = self.take_in(&mut claim, &answer);
        self.link = None;
        if grant == Grant::Granted {
            self.hold(claim);
        }
    }

    /// The request and the release in one write.
    pub(super) fn in_one_write(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(..=self.max_block());
        let line = claim.request(Some(block).filter(|block| *block > 0));
        if self.send(&[line, claim.release_line()]).is_none() {
            return;
        }
        let wait = Some(Duration::from_millis(block));
        let answer = self.answer(&claim, wait, None);
        self.take_in(&mut claim, &answer);
        if self.link.is_some() {
            let answer = self.answer(&claim, wait, None);
            self.released(&claim, &answer);
        }
    }

    /// Wants no reply to its request, and then asks whether it holds the lock.
    pub(super) fn in_silence(&mut self) {
        let mut claim = self.claim();
        let lease = claim.lease_ms.unwrap_or_default();
        let block = self.random.u64(1..300);
        let request = claim.request(Some(block));
        claim.asked_otherwise();
        claim.is_uncertain = true;
        let [before, after] =
            if self.random.bool() { ["CLIENT REPLY OFF", "CLIENT REPLY ON"] } else { ["CLIENT REPLY SKIP", "PING"] };
        // SKIP is for one command: the request.
        let extend = format!("LOCK.EXTEND {} {} PX {lease}", claim.key.name, claim.token);
        let lines = [before.to_owned(), request, after.to_owned(), extend, format!("ECHO {}", claim.token)];
        if self.send(&lines).is_none() {
            return;
        }
        self.run.counters.count("CLIENT REPLY");
        let wait = Some(Duration::from_millis(block));
        let first = self.answer(&claim, wait, None);
        if self.link.is_none() {
            return self.release(&mut claim);
        }
        let answer = self.answer(&claim, wait, None);
        self.check_extension(&claim, lease, &answer);
        if self.link.is_none() {
            return self.release(&mut claim);
        }
        let echo = self.answer(&claim, wait, None).reply;
        let is_right = (first.reply == "OK" || first.reply == "PONG") && echo == claim.token.to_string().as_str();
        if echo != Reply::Closed && !is_right {
            let text = format!("client {}: the replies are {:?} and {echo:?}", self.number, first.reply);
            self.run.report_lock(claim.key, ONE_REPLY, &text);
        }
        if matches!(answer.reply, Reply::Int(_)) {
            claim.granted(answer.sent, answer.received);
            self.hold(claim);
        } else {
            self.release(&mut claim);
        }
    }

    /// Sends a request and a part of its release, and closes the connection immediately or after a while.
    pub(super) fn cut_off(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(1..500);
        let release = claim.release_line();
        let missing = self.random.usize(1..release.len());
        let lines = [claim.request(Some(block)), release];
        if self.send_part(&lines, missing).is_none() {
            return;
        }
        self.run.counters.count("pipelines that are cut off");
        let patience = Duration::from_millis(self.random.u64(..60));
        let answer = self.answer(&claim, Some(Duration::from_millis(block)), Some(patience));
        let grant = self.take_in(&mut claim, &answer);
        self.link = None;
        if grant == Grant::Granted || self.try_once(&mut claim, Some(block)) == Grant::Granted {
            return self.hold(claim);
        }
        self.release(&mut claim);
    }

    /// RESET and CLIENT NO-EVICT do not end the sessions of the connection. False if it is closed.
    pub(super) fn reset(&mut self, claim: &Claim<'r>) -> bool {
        let Some(id) = self.link.as_ref().map(Link::id) else { return false };
        let switch = if self.random.bool() { "ON" } else { "OFF" };
        let (_, database) = self.run.address_of(claim.key.database);
        let lines = ["RESET".to_owned(), format!("SELECT {database}"), format!("CLIENT NO-EVICT {switch}")];
        if self.send(&lines).is_none() || self.link.as_ref().map(Link::id) != Some(id) {
            return false; // Clients use another server now.
        }
        self.run.counters.count("RESET");
        for expected in ["RESET", "OK", "OK"] {
            let answer = self.answer(claim, Some(Duration::ZERO), None);
            if answer.reply != expected && answer.reply != Reply::Closed {
                self.report(claim, EXPECTED, &format!("the reply is {:?}", answer.reply));
            }
            if self.link.is_none() {
                return false;
            }
        }
        true
    }
}
