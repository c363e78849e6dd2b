//! The checks on one lock: one holder, the limit of shares, the order of the queue, and fencing tokens that rise.
//!
//! A **hold** is a span in which a token certainly held a lock: from the moment at which its client had read the grant
//! to the moment at which it sent a RELEASE, EXTEND or FENCE that then succeeded, or to the end of its lease. Tokens
//! are used once, so a token that holds at both ends has held in between. Two holds overlap only if both are shares,
//! and no more of them than the limit, which all shares of a lock name.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::report::Rule;
use crate::token::Token;

/// How long holds and queues are kept. Far longer than any wait or lease.
const MEMORY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub token: Token,
    pub is_share: bool,
    pub from: Instant,
    pub until: Instant,
    /// The grant is the reply to the only request with this token. Such a token has been in the queue without a break
    /// since it was first seen there.
    pub one_request: bool,
}

/// A rule that is broken, with the other hold that it is broken with.
type Conflict = Option<(Rule, Hold)>;

#[derive(Default)]
pub struct Lock {
    holds: VecDeque<Hold>,
    /// Queues as they were seen at this time or later, the first waiter first.
    queues: VecDeque<(Instant, Vec<Token>)>,
    /// When a token was seen in the queue for the last time.
    seen: HashMap<Token, Instant>,
    limit: Option<usize>,
}

impl Lock {
    pub fn with_limit(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    pub fn saw_queue(&mut self, at: Instant, queue: Vec<Token>) {
        self.forget_before(at);
        self.seen.extend(queue.iter().map(|token| (*token, at)));
        self.queues.push_back((at, queue));
    }

    pub fn confirm(&mut self, hold: Hold) -> Conflict {
        if hold.until <= hold.from {
            return None;
        }
        self.forget_before(hold.until);
        let conflict = self.overlap(&hold).or_else(|| self.overtaking(&hold));
        self.holds.retain(|other| other.token != hold.token);
        self.holds.push_back(hold);
        conflict
    }

    fn overlap(&self, hold: &Hold) -> Conflict {
        let is_excluded = |other: &&Hold| !(hold.is_share && other.is_share);
        let excluded = self.during(hold).find(is_excluded).map(|other| ("one holder, or shares alone", *other));
        let too_many = || self.limit.is_some_and(|limit| self.most_together(hold) > limit);
        let other = || self.during(hold).next().filter(|_| too_many());
        excluded.or_else(|| other().map(|other| ("no more shares than the limit", *other)))
    }

    fn during(&self, hold: &Hold) -> impl Iterator<Item = &Hold> {
        let overlaps = |other: &&Hold| hold.from < other.until && other.from < hold.until;
        self.holds.iter().filter(|other| other.token != hold.token).filter(overlaps)
    }

    /// The most tokens that hold at one moment of this hold, itself included. The most do when one of them has just
    /// begun.
    fn most_together(&self, hold: &Hold) -> usize {
        let begins = self.during(hold).map(|other| other.from).chain([hold.from]);
        let held_at = |at: Instant| self.during(hold).filter(|other| other.from <= at && at < other.until).count() + 1;
        begins.filter(|at| *at >= hold.from).map(held_at).max().unwrap_or(1)
    }

    /// The order of the grants must be that of the queue.
    fn overtaking(&self, hold: &Hold) -> Conflict {
        if !hold.one_request {
            return None;
        }
        let known = |token: &Token| self.holds.iter().find(|other| other.token == *token && other.one_request);
        for (_, queue) in &self.queues {
            let Some(place) = queue.iter().position(|token| *token == hold.token) else { continue };
            let (ahead, behind) = (&queue[..place], &queue[place + 1..]);
            let late = ahead.iter().filter_map(known).find(|other| self.granted_after(other, hold));
            let early = || behind.iter().filter_map(known).find(|other| self.granted_after(hold, other));
            if let Some(other) = late.or_else(early) {
                return Some(("the queue is served in order", *other));
            }
        }
        None
    }

    /// Whether one was certainly granted after the other: it was still in the queue when the other client had read its
    /// grant, or it held later, and not at the same time.
    fn granted_after(&self, later: &Hold, earlier: &Hold) -> bool {
        let exclusive = !(later.is_share && earlier.is_share);
        let was_queued = self.seen.get(&later.token).is_some_and(|seen| *seen >= earlier.from);
        was_queued || (exclusive && later.from >= earlier.until)
    }

    fn forget_before(&mut self, now: Instant) {
        let Some(past) = now.checked_sub(MEMORY) else { return };
        self.holds.retain(|hold| hold.until >= past);
        while self.queues.front().is_some_and(|(at, _)| *at < past) {
            self.queues.pop_front();
            self.seen.retain(|_, at| *at >= past);
        }
    }
}

/// The highest fencing token of one lock, with the beginning and the end of its draw.
#[derive(Default)]
pub struct Fences(Option<(Instant, Instant, i64)>);

impl Fences {
    /// Takes in a draw. Returns the highest token if it is not lower although its draw had completed before this one
    /// was invoked, and the counter has not been lost since.
    pub fn draw(
        &mut self,
        is_lost_since: impl Fn(Instant) -> bool,
        invoked: Instant,
        completed: Instant,
        fence: i64,
    ) -> Option<i64> {
        let highest = self.0.filter(|(begun, ..)| !is_lost_since(*begun));
        self.0 = highest.filter(|(.., before)| *before > fence).or(Some((invoked, completed, fence)));
        highest.filter(|(_, end, before)| *end < invoked && *before >= fence).map(|(.., before)| before)
    }
}

#[cfg(test)]
mod tests;
