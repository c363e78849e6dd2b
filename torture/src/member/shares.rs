//! Shares that one client holds together, and what a token is told that holds in one form and asks for another.

use support::Reply;

use super::holding::{EXPECTED, Told};
use super::{Claim, Kind, Member};

const FORMS: &str = "nothing turns one form of a lock into another";
/// More than the limits of most keys.
const MOST_SHARES: usize = 5;

impl<'w> Member<'w> {
    /// Takes shares of one lock until it gets no more, each with a token of its own, and gives them back one by one.
    pub(super) fn several_shares(&mut self) {
        let first = self.claim();
        let mut held = Vec::new();
        for _ in 0..MOST_SHARES {
            let lease = self.random.u64(50..500);
            let mut claim = Claim::new(self.world, first.key, Kind::Share, Some(lease));
            let block = if held.is_empty() { self.block() } else { None };
            if self.try_once(&mut claim, block) != Told::Yours {
                break;
            }
            held.push(claim);
        }
        if held.len() > 1 {
            self.world.figures.met("shares of one client");
        }
        for claim in held {
            self.finish(claim);
        }
    }

    /// Who holds the lock alone asks for a share of it, or the other way round.
    pub(super) fn in_another_form(&mut self) {
        let mut claim = self.claim();
        let block = self.block();
        if self.try_once(&mut claim, block) != Told::Yours {
            return;
        }
        claim.asked_otherwise();
        let line = self.line_in_another_form(&claim);
        let answer = self.ask(&claim, line, 0);
        match &answer.reply {
            Reply::Error(line) if line.starts_with("OTHERFORM") => {
                self.world.figures.met("OTHERFORM");
                self.was_held(&claim, &answer);
                self.hold(claim);
            }
            Reply::Int(1) | Reply::Nil => {
                if claim.has_lease_at(self.world, answer.received) {
                    self.charge(&claim, FORMS, &format!("it was told 1, and then {:?}", answer.reply));
                }
                // The lease had ended, so it may be held in the other form now.
                claim.may_be_over();
                self.release(&mut claim);
            }
            Reply::Closed => {}
            other if self.may_be_told(other) => {}
            other => self.charge(&claim, EXPECTED, &format!("it was told {other:?}")),
        }
    }

    fn line_in_another_form(&mut self, claim: &Claim<'w>) -> String {
        let (name, token, lease) = (&claim.key.name, claim.token, self.random.u64(5..=25));
        let command = match claim.kind {
            Kind::Share if self.random.bool() => "ACQUIRE",
            Kind::Share => "REENTER",
            _ => "SHARE",
        };
        format!("LOCK.{command} {name} {token} PX {lease}")
    }
}
