//! Clients that contend for the locks, and stop at the end of their leases by their own clock.
//!
//! Each uses one node. Half of them go to a new master of which they hear, with the locks that they hold, and to
//! another node as soon as one does not answer or refuses. The others stay with theirs until it says that it is no
//! master, so that a master that was replaced still gets requests.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::Reply;

use super::MAX_LEASE;
use super::contest::{Contest, LIMIT};
use super::nodes::NODES;
use crate::history::Hold;
use crate::keys::Key;
use crate::link::Link;

/// How long a reply may take, for clients that go to another node then, and for those that stay.
const REPLY: Duration = Duration::from_millis(200);
const LATE_REPLY: Duration = Duration::from_millis(1200);
const BLOCK: Duration = Duration::from_millis(400);
/// The time between two requests, in milliseconds.
const REST_MS: Range<u64> = 10..50;
/// The time between two locks, now and then: so that some clients use their old connection after the node was silent
/// for a while.
const LONG_REST_MS: Range<u64> = 50..1500;

pub struct Client<'c> {
    contest: &'c Contest,
    random: fastrand::Rng,
    node: usize,
    master: usize,
    is_loyal: bool,
    /// Whether it has a lock that belongs to its connection.
    is_bound: bool,
    link: Option<Link>,
}

/// A reply, with the times of its request and of itself.
type Answer = (Instant, Instant, Reply);

impl<'c> Client<'c> {
    pub fn new(contest: &'c Contest, number: usize, random: fastrand::Rng) -> Self {
        let node = contest.master.load(Ordering::Relaxed);
        Self { contest, random, node, master: node, is_loyal: number % 2 == 0, is_bound: false, link: None }
    }

    pub fn run(mut self) {
        while !self.contest.is_over() {
            self.is_bound = self.random.u8(..5) == 0;
            if let Some((key, hold)) = self.acquire() {
                self.hold(key, hold);
            }
            self.is_bound = false;
            let rest = if self.random.u8(..3) == 0 { LONG_REST_MS } else { REST_MS };
            self.contest.rest(Duration::from_millis(self.random.u64(rest)));
        }
    }

    /// Asks for a lock. A lease counts from the request if the reply comes without waiting; otherwise from an EXTEND.
    fn acquire(&mut self) -> Option<(&'c Key, Hold)> {
        let (key, is_shared) = self.contest.choose(&mut self.random);
        let token = self.contest.tokens.fresh();
        let is_share = is_shared && self.random.u8(..4) > 0;
        let lease = if self.random.bool() { MAX_LEASE } else { Duration::from_millis(self.random.u64(300..1000)) };
        let (command, limit) = if is_share { ("SHARE", format!(" LIMIT {LIMIT}")) } else { ("ACQUIRE", String::new()) };
        let session = if self.is_bound { " SESSION" } else { "" };
        let mut line = format!("LOCK.{command} {} {token} PX {}{limit}{session}", key.name, lease.as_millis());
        let mut patience = if self.is_loyal { LATE_REPLY } else { REPLY };
        let waits = self.random.bool();
        if waits {
            line += &format!(" BLOCK {}", BLOCK.as_millis());
            patience += BLOCK;
        }
        let (sent, from, _) = self.send(&line, patience).filter(|(.., reply)| *reply == 1)?;
        self.contest.grants[self.node].fetch_add(1, Ordering::Relaxed);
        let mut hold = Hold { token, is_share, from, until: sent + lease, one_request: false };
        if waits || self.is_bound {
            let (sent, from, _) = self.extend(key, &hold).filter(|(.., reply)| matches!(reply, Reply::Int(_)))?;
            (hold.from, hold.until) = (from, sent + MAX_LEASE);
        }
        Some((key, hold))
    }

    /// Holds the lock in one of several ways, and notes from when to when it believed that it held it.
    fn hold(&mut self, key: &Key, mut hold: Hold) {
        let renewals = if self.random.bool() { self.random.u32(1..8) } else { 0 };
        for _ in 0..renewals {
            self.contest.rest(MAX_LEASE / 4);
            let asked = Instant::now();
            if asked >= hold.until || !self.renew(key, &mut hold, asked) {
                break;
            }
        }
        let releases = self.random.u8(..3) == 0;
        let early = hold.until.checked_sub(MAX_LEASE / 2).filter(|_| releases);
        self.contest.rest(early.unwrap_or(hold.until).saturating_duration_since(Instant::now()));
        hold.until = hold.until.min(Instant::now());
        self.contest.history.confirm(key, hold);
        if self.is_bound {
            self.link = None;
        } else if releases {
            self.send(&format!("LOCK.RELEASE {} {}", key.name, hold.token), REPLY);
        }
    }

    /// Lengthens the lease, at another node if this one does not answer. Returns false if the lock is lost.
    fn renew(&mut self, key: &Key, hold: &mut Hold, asked: Instant) -> bool {
        while !self.contest.is_over() && Instant::now() < hold.until {
            match self.extend(key, hold) {
                // Too late is too late, whatever the server replies.
                Some((sent, at, Reply::Int(_))) if at <= hold.until => {
                    hold.until = sent + MAX_LEASE;
                    return true;
                }
                Some((_, at, reply)) if is_loss(&reply) => hold.until = hold.until.min(at),
                // The connection is closed, and the lock with it.
                None if self.is_bound => hold.until = hold.until.min(asked),
                _ => self.contest.rest(Duration::from_millis(REST_MS.start)),
            }
        }
        false
    }

    fn extend(&mut self, key: &Key, hold: &Hold) -> Option<Answer> {
        let left = hold.until.saturating_duration_since(Instant::now());
        let line = format!("LOCK.EXTEND {} {} PX {}", key.name, hold.token, MAX_LEASE.as_millis());
        self.send(&line, REPLY.min(left))
    }

    /// Sends a line and waits for its reply. `None` without a connection, or a reply in time. Goes to another node if
    /// this one cannot grant the lock, and to a new master of which it has heard.
    fn send(&mut self, line: &str, limit: Duration) -> Option<Answer> {
        let master = self.contest.master.load(Ordering::Relaxed);
        let is_free = !self.is_bound || self.link.is_none();
        if !self.is_loyal && is_free && master != self.master {
            (self.master, self.node, self.link) = (master, master, None);
        }
        let open = || Link::bare(&self.contest.history, self.contest.ports[self.node], REPLY);
        let link = self.link.take().or_else(open);
        let is_down = link.is_none();
        let answer = link.and_then(|mut link| {
            let sent = link.send(&[line])?;
            let reply = link.receive(limit).filter(|reply| *reply != Reply::Closed)?;
            self.link = Some(link);
            Some((sent, Instant::now(), reply))
        });
        let moves = match &answer {
            None => is_down || !self.is_loyal,
            Some((.., reply)) if !reply.is_error() || is_loss(reply) || self.is_bound => false,
            Some((.., reply)) if matches!(reply.code(), "READONLY" | "MOVED" | "UNBLOCKED") => true,
            Some((.., reply)) => !self.is_loyal && reply.code() != "TRYAGAIN",
        };
        if moves {
            (self.link, self.node) = (None, (self.node + 1) % NODES);
        }
        answer
    }
}

fn is_loss(reply: &Reply) -> bool {
    reply.is_error() && matches!(reply.code(), "NOTHELD" | "NOTOWNER")
}
