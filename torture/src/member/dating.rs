//! When a lock was granted, as the end of its lease tells, and what was answered in a pause.

use std::time::Instant;

use support::Reply;

use super::{Answer, Claim, Kind, Member};
use crate::link::Link;
use crate::pauses::NOTHING_IN_A_PAUSE;

const CHECK: &str = "grants dated";

impl<'w> Member<'w> {
    /// Where a wait has met a pause, sees that the lock was not handed over in it.
    pub(super) fn date_grant(&mut self, claim: &Claim<'w>, answer: &Answer) {
        let world = self.world;
        // The key of a shared lock lasts as long as the longest share, and that of a session is renewed.
        let tells = claim.kind != Kind::Share && !claim.session && claim.has_one_request() && world.is_clock_steady;
        let Some((port, lease)) = self.link.as_ref().map(Link::port).zip(claim.lease_ms).filter(|_| tells) else {
            return;
        };
        if !world.pauses.any_between(port, answer.sent, answer.received) {
            return;
        }
        world.figures.begins(CHECK);
        let leases = world.settings.possible_leases(lease, answer.sent, answer.received);
        let told = self.ask(claim, format!("PEXPIRETIME {}", claim.key.name), 0);
        let ([lease], Reply::Int(end_ms)) = (&leases[..], &told.reply) else { return };
        if !claim.has_lease_at(world, told.received) {
            return;
        }
        world.figures.checked(CHECK);
        let granted_ms = end_ms - i64::try_from(*lease).unwrap_or_default();
        if world.pauses.cover_ms(port, granted_ms) {
            self.charge(claim, NOTHING_IN_A_PAUSE, &format!("its lease of {lease} ms ends at {end_ms}"));
        }
    }

    /// What was sent in a pause, and writes, is answered after it.
    pub(super) fn check_pause(&self, claim: &Claim<'_>, what: &str, sent: Instant, received: Instant, reply: &Reply) {
        let has_written = what.contains("LOCK.") && matches!(reply, Reply::Int(_));
        let Some(port) = self.link.as_ref().map(Link::port).filter(|_| has_written) else { return };
        if self.world.pauses.cover(port, sent, received) {
            let text = format!("client {}: {what} was sent in a pause, and in it told {reply:?}", self.number);
            self.world.accuse(claim.key, NOTHING_IN_A_PAUSE, &text);
        }
    }
}
