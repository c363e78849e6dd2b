//! Several commands in one write: requests among commands that change the replies of a connection, and pipelines that
//! are cut off.

use std::time::Duration;

use support::Reply;

use super::{Claim, Client};
use crate::history::EXPECTED;
use crate::link::Link;

const ONE_REPLY: &str = "each request has one reply, or none where the client wants none";

impl<'r> Client<'r> {
    /// The request, and QUIT or the release, in one write. A lock that is granted before QUIT is used from another
    /// connection.
    pub(super) fn in_one_write(&mut self) {
        let (claim, quits) = (self.claim(), self.random.bool());
        let second = if quits { "QUIT".to_owned() } else { claim.release() };
        let request = claim.request(Some(self.long_block()).filter(|block| *block > 1));
        if self.send_part(&[request, second], 0).is_none() {
            return;
        }
        let replies = [(); 2].map(|()| self.answer(None));
        self.link.take_if(|_| quits);
        if quits && replies[0] == 1 {
            self.hold(&claim);
        }
    }

    /// Wants no reply to its request, and then asks whether it holds the lock.
    pub(super) fn in_silence(&mut self) {
        let claim = self.claim();
        let request = claim.request(Some(self.random.u64(1..300)));
        let [before, after] =
            if self.random.bool() { ["CLIENT REPLY OFF", "CLIENT REPLY ON"] } else { ["CLIENT REPLY SKIP", "PING"] };
        // SKIP is for one command: the request.
        let (extend, echo) = (claim.extend(claim.lease_ms.unwrap_or(1)), format!("ECHO {}", claim.token));
        if self.send_part(&[before.to_owned(), request, after.to_owned(), extend, echo], 0).is_none() {
            return;
        }
        self.run.counters.count("CLIENT REPLY");
        let [first, extended, echo] = [(); 3].map(|()| self.answer(None));
        let is_right = (first == "OK" || first == "PONG") && echo == claim.token.to_string().as_str();
        if echo != Reply::Closed && !is_right {
            let text = format!("client {}: the replies are {first:?} and {echo:?}", self.number);
            self.run.report(claim.key.database, &claim.key.name, ONE_REPLY, &text);
        }
        if matches!(extended, Reply::Int(_)) { self.hold(&claim) } else { self.release(&claim) }
    }

    /// Sends a request and a part of its release, and closes the connection immediately or after a while.
    pub(super) fn cut_off(&mut self) {
        let claim = self.claim();
        let block = self.random.u64(1..500);
        let release = claim.release();
        let missing = self.random.usize(1..release.len());
        if self.send_part(&[claim.request(Some(block)), release], missing).is_none() {
            return;
        }
        self.run.counters.count("pipelines that are cut off");
        let patience = Duration::from_millis(self.random.u64(..60));
        let reply = self.answer(Some(patience));
        self.link = None;
        if reply == 1 || self.ask(claim.request(Some(block))) == 1 {
            return self.hold(&claim);
        }
        self.release(&claim);
    }

    /// RESET and CLIENT NO-EVICT do not end the sessions of the connection. False if it is closed.
    pub(super) fn resets(&mut self, claim: &Claim<'r>) -> bool {
        let Some(id) = self.link.as_ref().map(Link::id) else { return false };
        let switch = if self.random.bool() { "ON" } else { "OFF" };
        let (_, database) = self.run.address_of(claim.key.database);
        let lines = ["RESET".to_owned(), format!("SELECT {database}"), format!("CLIENT NO-EVICT {switch}")];
        if self.send_part(&lines, 0).is_none() || self.link.as_ref().map(Link::id) != Some(id) {
            return false; // Clients use another server now.
        }
        self.run.counters.count("RESET");
        let replies = [(); 3].map(|()| self.answer(None));
        let is_expected = |(reply, expected): (&Reply, &str)| *reply == expected || *reply == Reply::Closed;
        if !replies.iter().zip(["RESET", "OK", "OK"]).all(is_expected) {
            self.run.fails(EXPECTED, format!("the replies to RESET are {replies:?}"));
        }
        self.link.is_some()
    }
}
