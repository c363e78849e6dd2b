//! Clients that contend for the locks, and stop at the end of their leases by their own clock.
//!
//! Each uses one node. Half of them hear of a new master and go there, with the locks that they hold, and go to another
//! node as soon as one does not answer or refuses. The others stay with theirs until it says that it is no master, so
//! that a master that was replaced still gets requests.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::Reply;

use super::MAX_LEASE;
use super::nodes::NODES;
use super::round::{Contest, LIMIT};
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
    contest: &'c Contest<'c>,
    random: fastrand::Rng,
    node: usize,
    /// The latest master that it has heard of.
    master: usize,
    is_loyal: bool,
    /// Whether it has a lock that belongs to its connection.
    is_bound: bool,
    link: Option<Link>,
}

type Answer = (Instant, Instant, Reply);

/// A lock that the client believes to hold.
struct Held<'c> {
    key: &'c Key,
    hold: Hold,
    session: bool,
}

impl<'c> Client<'c> {
    pub fn new(contest: &'c Contest<'c>, number: usize, random: fastrand::Rng) -> Self {
        let node = contest.master.load(Ordering::Relaxed);
        Self { contest, random, node, master: node, is_loyal: number % 2 == 0, is_bound: false, link: None }
    }

    pub fn run(mut self) {
        while !self.contest.is_over() {
            self.hear();
            if let Some(held) = self.ask() {
                self.hold(held);
            }
            let rest = if self.random.u8(..3) == 0 { LONG_REST_MS } else { REST_MS };
            self.rest(rest);
        }
    }

    /// Asks for a lock. A lease counts from the request if the reply comes without waiting; otherwise from an EXTEND.
    fn ask(&mut self) -> Option<Held<'c>> {
        let (key, is_shared) = self.contest.choose(&mut self.random);
        let token = self.contest.tokens.fresh();
        let is_share = is_shared && self.random.u8(..4) > 0;
        let lease = if self.random.bool() { MAX_LEASE } else { Duration::from_millis(self.random.u64(300..1000)) };
        let (waits, session) = (self.random.bool(), self.random.u8(..5) == 0);
        let (command, limit) = if is_share { ("SHARE", format!(" LIMIT {LIMIT}")) } else { ("ACQUIRE", String::new()) };
        let mut line = format!("LOCK.{command} {} {token} PX {}{limit}", key.name, lease.as_millis());
        let mut patience = if self.is_loyal { LATE_REPLY } else { REPLY };
        if session {
            line += " SESSION";
        }
        if waits {
            line += &format!(" BLOCK {}", BLOCK.as_millis());
            patience += BLOCK;
        }
        let (sent, at, _) = self.send(&line, patience).filter(|(_, _, reply)| *reply == 1)?;
        self.contest.granted(self.node);
        let mut hold = Hold { token, is_share, from: at, until: sent + lease, one_request: false };
        if waits || session {
            let (sent, at, _) = self.extend(key, &hold, REPLY).filter(|(.., reply)| matches!(reply, Reply::Int(_)))?;
            (hold.from, hold.until) = (at, sent + MAX_LEASE);
        }
        Some(Held { key, hold, session })
    }

    /// Holds the lock in one of several ways, and notes from when to when it believed that it held it.
    fn hold(&mut self, mut held: Held<'c>) {
        self.is_bound = held.session;
        let renewals = if self.random.bool() { self.random.u32(1..8) } else { 0 };
        for _ in 0..renewals {
            self.contest.rest_until(held.hold.from.max(Instant::now()) + MAX_LEASE / 4);
            if !self.renew(&mut held) {
                break;
            }
        }
        let releases = self.random.u8(..3) == 0;
        let early = held.hold.until.checked_sub(MAX_LEASE / 2).filter(|_| releases);
        self.contest.rest_until(early.unwrap_or(held.hold.until));
        held.hold.until = held.hold.until.min(Instant::now());
        self.contest.believed(held.key, held.hold);
        self.is_bound = false;
        if held.session {
            self.link = None;
        } else if releases {
            self.send(&format!("LOCK.RELEASE {} {}", held.key.name, held.hold.token), REPLY);
        }
    }

    /// Lengthens the lease, at another node if this one does not answer. Returns false if the lock is lost, or its time
    /// is up.
    fn renew(&mut self, held: &mut Held<'c>) -> bool {
        while !self.contest.is_over() {
            let asked = Instant::now();
            let left = held.hold.until.saturating_duration_since(asked);
            if left.is_zero() {
                return false;
            }
            self.hear();
            match self.extend(held.key, &held.hold, REPLY.min(left)) {
                Some((sent, at, Reply::Int(_))) => {
                    // Too late is too late, whatever the server replies.
                    let is_in_time = at <= held.hold.until;
                    held.hold.until = if is_in_time { sent + MAX_LEASE } else { held.hold.until };
                    return is_in_time;
                }
                Some((_, at, reply)) if is_loss(&reply) => {
                    held.hold.until = held.hold.until.min(at);
                    return false;
                }
                Some(_) => {}
                None if held.session => {
                    // The connection is closed, and the lock with it.
                    held.hold.until = held.hold.until.min(asked);
                    return false;
                }
                None => self.go_on(),
            }
            self.rest(REST_MS);
        }
        false
    }

    fn extend(&mut self, key: &Key, hold: &Hold, limit: Duration) -> Option<Answer> {
        self.send(&format!("LOCK.EXTEND {} {} PX {}", key.name, hold.token, MAX_LEASE.as_millis()), limit)
    }

    /// Sends a line and waits for its reply. `None` without a connection, or a reply in time.
    fn send(&mut self, line: &str, limit: Duration) -> Option<Answer> {
        if self.link.is_none() {
            self.link = Link::bare(&self.contest.history, self.contest.ports.of(self.node), REPLY);
        }
        let Some(link) = &mut self.link else {
            self.go_on();
            return None;
        };
        let sent = link.send(&[line]);
        let reply = sent.and_then(|_| link.receive(limit)).filter(|reply| *reply != Reply::Closed);
        let at = Instant::now();
        let (Some(sent), Some(reply)) = (sent, reply) else {
            self.link = None;
            if !self.is_loyal {
                self.go_on();
            }
            return None;
        };
        // Goes to another node if this one cannot grant the lock.
        let has_code = |codes: &[&str]| reply.is_error() && codes.contains(&reply.code());
        let is_no_master = has_code(&["READONLY", "MOVED", "UNBLOCKED"]);
        let refuses = !self.is_loyal && reply.is_error() && !is_loss(&reply) && !has_code(&["TRYAGAIN"]);
        if (is_no_master || refuses) && !self.is_bound {
            self.go_on();
        }
        Some((sent, at, reply))
    }

    /// Goes to a new master that is announced.
    fn hear(&mut self) {
        let master = self.contest.master.load(Ordering::Relaxed);
        if !self.is_loyal && !self.is_bound && master != self.master {
            (self.master, self.node, self.link) = (master, master, None);
        }
    }

    fn go_on(&mut self) {
        self.link = None;
        self.node = (self.node + 1) % NODES;
    }

    fn rest(&mut self, range_ms: Range<u64>) {
        let rest = Duration::from_millis(self.random.u64(range_ms));
        self.contest.rest_until(Instant::now() + rest);
    }
}

fn is_loss(reply: &Reply) -> bool {
    reply.is_error() && matches!(reply.code(), "NOTHELD" | "NOTOWNER")
}
