//! What a holder asks for once more, and locks that have no lease.

use support::Reply;

use super::holding::Told;
use super::{Answer, Claim, Kind, Member};

const SAME: &str = "a request that is sent again while its token holds is told 1";

impl<'w> Member<'w> {
    /// The holder of a mutex or a share sends its request again.
    pub(super) fn twice(&mut self) {
        let mut claim = self.claim();
        if claim.kind == Kind::Reentrant {
            claim.kind = Kind::Share;
        }
        let block = self.block();
        if self.try_once(&mut claim, block) != Told::Yours {
            return;
        }
        let line = claim.request(None);
        let answer = self.ask(&claim, line, 0);
        if self.told_again(&mut claim, &answer) == Told::Yours {
            self.world.figures.met("repeats by holders");
            self.hold(claim);
        }
    }

    /// Takes in the answer to a request that was sent again by the holder.
    fn told_again(&mut self, claim: &mut Claim<'w>, answer: &Answer) -> Told {
        let sure = claim.has_lease_at(self.world, answer.received);
        self.judge(claim, claim.lease_ms, answer);
        match &answer.reply {
            // It is the same grant: a lease only grows.
            Reply::Int(1) if sure => {
                claim.lengthened(self.world, answer.sent, answer.received);
                Told::Yours
            }
            Reply::Int(1) | Reply::Closed => self.told(claim, answer),
            other => {
                if sure && !self.may_be_told(other) {
                    self.charge(claim, SAME, &format!("it was told {other:?}"));
                }
                claim.may_be_over();
                self.told(claim, answer)
            }
        }
    }

    /// A lock without a lease, mostly a share. It is released whatever happens, and never asked for on a connection that
    /// this client closes: a request that comes after its release would hold the lock for ever.
    pub(super) fn without_a_lease(&mut self) {
        let mut claim = self.claim();
        claim.lease_ms = None;
        if self.random.u8(..4) > 0 {
            claim.kind = Kind::Share;
        }
        let block = self.block();
        match self.try_once(&mut claim, block) {
            Told::Yours => {
                self.world.figures.met("locks without a lease");
                self.hold(claim);
            }
            _ => self.clean_up(claim),
        }
    }
}
