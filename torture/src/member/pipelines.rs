//! Requests among commands that change what the connection is answered, and pipelines that are cut off in the middle.

use std::time::Duration;

use support::Reply;

use super::holding::{EXPECTED, Told};
use super::{Claim, Member};
use crate::link::Link;

const ONE_ANSWER: &str = "each request has one answer, or none where the client wants none";

impl<'w> Member<'w> {
    /// Wants no answer to its request, and then asks whether it holds the lock.
    pub(super) fn in_silence(&mut self) {
        let mut claim = self.claim();
        let Some(lease) = claim.lease_ms else { return };
        let block = self.random.u64(1..300);
        let request = claim.request(Some(block));
        claim.asked_otherwise();
        claim.doubtful = true;
        let line = |text: &str| text.to_owned();
        let mut lines = if self.random.bool() {
            vec![line("CLIENT REPLY OFF"), request, line("CLIENT REPLY ON")]
        } else {
            vec![line("CLIENT REPLY SKIP"), request, line("PING")]
        };
        lines.push(format!("LOCK.EXTEND {} {} PX {lease}", claim.key.name, claim.token));
        lines.push(format!("ECHO {}", claim.token));
        let Some(sent) = self.send(&claim, &lines) else { return };
        self.world.figures.met("CLIENT REPLY");
        let wait = Some(Duration::from_millis(block));
        let woken = self.answer(&claim, "what ends the silence", sent, wait, None);
        if self.link.is_none() {
            return self.release(&mut claim);
        }
        let answer = self.answer(&claim, "LOCK.EXTEND behind it", sent, wait, None);
        self.judge_extension(&claim, lease, &answer);
        if self.link.is_none() {
            return self.release(&mut claim);
        }
        let echo = self.answer(&claim, "ECHO behind it", sent, wait, None);
        let says = [&woken.reply, &echo.reply].map(|reply| format!("{reply:?}"));
        if echo.reply != Reply::Closed && (echo.reply != claim.token.to_string().as_str() || !is_short(&woken.reply)) {
            let text = format!("client {}: it was told {}", self.number, says.join(" and "));
            self.world.accuse(claim.key, ONE_ANSWER, &text);
        }
        if matches!(answer.reply, Reply::Int(_)) {
            claim.granted(self.world, answer.sent, answer.received);
            self.hold(claim);
        } else {
            self.release(&mut claim);
        }
    }

    /// Sends a request and a part of its release, and hangs up, at once or after a while.
    pub(super) fn cut_off(&mut self) {
        let mut claim = self.claim();
        let block = self.random.u64(1..500);
        let line = claim.request(Some(block));
        let release = claim.release_line();
        let missing = self.random.usize(1..release.len());
        let lines = [line.clone(), release];
        let Some(sent) = self.send_part(&claim, &lines, missing) else { return };
        self.world.figures.met("pipelines that are cut off");
        let patience = Duration::from_millis(self.random.u64(..60));
        let answer = self.answer(&claim, &line, sent, Some(Duration::from_millis(block)), Some(patience));
        let told = self.told(&mut claim, &answer);
        self.hang_up();
        if told == Told::Yours && !claim.session {
            return self.hold(claim);
        }
        if self.try_once(&mut claim, Some(block)) == Told::Yours {
            return self.hold(claim);
        }
        self.release(&mut claim);
    }

    /// RESET and CLIENT NO-EVICT leave the connection, and so its sessions, as they are. False when it is closed.
    pub(super) fn reset(&mut self, claim: &Claim<'w>) -> bool {
        let Some(id) = self.link.as_ref().map(Link::id) else { return false };
        let switch = if self.random.bool() { "ON" } else { "OFF" };
        let (_, database) = self.world.address_of(claim.key.database);
        let lines = ["RESET".to_owned(), format!("SELECT {database}"), format!("CLIENT NO-EVICT {switch}")];
        let Some(sent) = self.send(claim, &lines) else { return false };
        if self.link.as_ref().map(Link::id) != Some(id) {
            return false; // Clients talk to another server now.
        }
        self.world.figures.met("RESET");
        for (line, expected) in lines.iter().zip(["RESET", "OK", "OK"]) {
            let answer = self.answer(claim, line, sent, Some(Duration::ZERO), None);
            if answer.reply != expected && answer.reply != Reply::Closed {
                self.charge(claim, EXPECTED, &format!("it was told {:?}", answer.reply));
            }
            if self.link.is_none() {
                return false;
            }
        }
        true
    }
}

/// OK, or PONG.
fn is_short(reply: &Reply) -> bool {
    *reply == "OK" || *reply == "PONG"
}
