//! From the grant to the release.

use std::time::Duration;

use support::Reply;

use super::{Claim, Client};
use crate::evidence::is_put_off;

impl<'r> Client<'r> {
    /// Keeps a lock for some time, does with it what holders do, and mostly releases it.
    pub(super) fn hold(&mut self, claim: &Claim<'r>) {
        let Some(lease) = claim.lease_ms else {
            self.run.think(Duration::from_millis(self.random.u64(..60)));
            return self.clean_up(claim);
        };
        if self.random.u8(..8) == 0 && !self.session_is_over(claim) {
            self.ask(format!("LOCK.FENCE {0} {1} fence:{0}", claim.key.name, claim.token));
        }
        if self.random.u8(..10) < 6 {
            self.run.think(Duration::from_millis(self.random.u64(..=lease + lease / 4)));
        }
        self.finish(claim);
    }

    pub(super) fn finish(&mut self, claim: &Claim<'r>) {
        if self.random.u8(..4) == 0 && !self.extends(claim) {
            return;
        }
        if self.random.u8(..8) > 0 {
            return self.release(claim);
        }
        // The lease ends by itself, or the session with its connection.
        if claim.session {
            self.link = None;
        } else {
            self.run.abandon(claim.key, claim.token);
        }
    }

    /// Sets the lease; false if the lock is lost, or nothing more is known of it.
    fn extends(&mut self, claim: &Claim<'r>) -> bool {
        if self.session_is_over(claim) {
            return false;
        }
        let lease = self.random.u64(if claim.session { 100..600 } else { 5..600 });
        match self.ask(claim.extend(lease)) {
            Reply::Int(_) => true,
            Reply::Closed => !claim.session,
            reply => is_put_off(&reply),
        }
    }

    pub(super) fn release(&mut self, claim: &Claim<'r>) {
        for _ in 0..2 {
            if self.session_is_over(claim) || self.ask(claim.release()) != Reply::Closed {
                return;
            }
        }
    }

    /// Releases until there is a reply: nothing else would end a hold without a lease.
    pub(super) fn clean_up(&mut self, claim: &Claim<'r>) {
        while !self.run.is_over() {
            let reply = self.ask(claim.release());
            if reply != Reply::Closed && !self.run.is_refusal(&reply) {
                return;
            }
        }
    }

    /// The lock of a session is released with its connection. (After CLIENT UNBLOCK clients close it.) A connection to
    /// a server that has been replaced may have been closed there.
    fn session_is_over(&mut self, claim: &Claim<'r>) -> bool {
        self.link = self.run.current(self.link.take());
        claim.session && self.link.is_none()
    }
}
