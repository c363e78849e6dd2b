//! Clients that contend for the locks, and stop at the end of their leases by their own count.
//!
//! Each talks to one node. Half of them hear of a new master at once and go there, with the locks that they hold, and go
//! elsewhere as soon as a node does not answer or refuses. The others stay with theirs until it says that it is no master,
//! so that a master that was replaced is asked on and on.

use std::ops::Range;
use std::time::{Duration, Instant};

use support::connection::{Connection, packed};
use support::{Reply, bytes_of};

use crate::field::Field;
use crate::ledger::{Belief, LIMIT};
use crate::scene::NODES;
use crate::settings::L;

/// How long an answer may take, for those who go elsewhere then, and for those who stay.
const ANSWER: Duration = Duration::from_millis(200);
const LATE_ANSWER: Duration = Duration::from_millis(1200);
const CONNECTING: Duration = Duration::from_millis(200);
const BLOCK: Duration = Duration::from_millis(400);
/// The time between two requests, in milliseconds.
const REST_MS: Range<u64> = 10..50;
/// The time between two locks, now and then: so that some clients ask again on their old connection when the node has been
/// silent for a while.
const LONG_REST_MS: Range<u64> = 50..1500;

pub struct Client<'a> {
    field: &'a Field<'a>,
    random: fastrand::Rng,
    node: usize,
    /// The master of which it heard last.
    master: usize,
    is_loyal: bool,
    /// Whether it has a lock that belongs to its connection.
    is_bound: bool,
    link: Option<Connection>,
}

/// A reply, with when the request left and when the reply was there.
struct Answer {
    sent: Instant,
    at: Instant,
    reply: Reply,
}

/// A way to ask for a lock.
struct Way {
    lock: usize,
    shares: bool,
    waits: bool,
    session: bool,
    lease: Duration,
}

/// What is held.
struct Hold {
    belief: Belief,
    key: String,
    session: bool,
}

impl<'a> Client<'a> {
    pub fn new(field: &'a Field<'a>, number: usize, random: fastrand::Rng) -> Self {
        let node = field.master();
        Self { field, random, node, master: node, is_loyal: number % 2 == 0, is_bound: false, link: None }
    }

    /// Contends until the round is over.
    pub fn run(mut self) {
        while !self.field.is_over() {
            self.hear();
            let way = self.choose();
            if let Some(hold) = self.ask(&way) {
                self.hold(hold);
            }
            let rest = if self.random.u8(..3) == 0 { LONG_REST_MS } else { REST_MS };
            self.rest(rest);
        }
    }

    fn choose(&mut self) -> Way {
        let (lock, is_shared) = self.field.choose(&mut self.random);
        let shares = is_shared && self.random.u8(..4) > 0;
        let lease = if self.random.bool() { L } else { Duration::from_millis(self.random.u64(300..1000)) };
        Way { lock, shares, waits: self.random.bool(), session: self.random.u8(..5) == 0, lease }
    }

    /// Asks for a lock. A lease counts from when the request left, if it was answered at once; otherwise from when the
    /// client sent EXTEND.
    fn ask(&mut self, way: &Way) -> Option<Hold> {
        let (key, token) = (self.field.key(way.lock), self.field.token());
        let command = if way.shares { "LOCK.SHARE" } else { "LOCK.ACQUIRE" };
        let mut line = format!("{command} {key} {token} PX {}", way.lease.as_millis());
        let mut limit = self.answer_limit();
        if way.shares {
            line += &format!(" LIMIT {LIMIT}");
        }
        if way.session {
            line += " SESSION";
        }
        if way.waits {
            line += &format!(" BLOCK {}", BLOCK.as_millis());
            limit += BLOCK;
        }
        let answer = self.send(&line, limit)?;
        if answer.reply != 1 {
            return None;
        }
        let node = self.node;
        self.field.ledger.granted(node);
        let (mut from, mut until) = (answer.at, answer.sent + way.lease);
        let mut story = line;
        if way.waits || way.session {
            let confirmed = self.extend(&key, &token, ANSWER)?;
            confirmed.is_confirmed().then_some(())?;
            (from, until) = (confirmed.at, confirmed.sent + L);
            story += ", EXTEND";
        }
        let belief = Belief { lock: way.lock, token, shares: way.shares, node, from, until, story };
        Some(Hold { belief, key, session: way.session })
    }

    /// Holds the lock in one of several ways, and notes from when to when it was believed to be held.
    fn hold(&mut self, mut hold: Hold) {
        self.is_bound = hold.session;
        let renewals = if self.random.bool() { self.random.u32(1..8) } else { 0 };
        for _ in 0..renewals {
            self.field.rest_until(hold.belief.from.max(Instant::now()) + L / 4);
            if !self.renew(&mut hold) {
                break;
            }
        }
        let releases = self.random.u8(..3) == 0;
        if releases {
            let early = hold.belief.until.checked_sub(L / 2).unwrap_or(hold.belief.until);
            self.field.rest_until(early);
        } else {
            self.field.rest_until(hold.belief.until);
        }
        hold.belief.until = hold.belief.until.min(Instant::now());
        let release = format!("LOCK.RELEASE {} {}", hold.key, hold.belief.token);
        self.field.ledger.believed(hold.belief);
        self.is_bound = false;
        if hold.session {
            self.link = None;
        } else if releases {
            self.send(&release, ANSWER);
        }
    }

    /// Lengthens the lease, at another node if this one does not answer. Returns false if the lock is lost, or time is up.
    fn renew(&mut self, hold: &mut Hold) -> bool {
        while !self.field.is_over() {
            let left = hold.belief.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.hear();
            let (node, asked) = (self.node, Instant::now());
            match self.extend(&hold.key, &hold.belief.token, ANSWER.min(left)) {
                Some(answer) if answer.is_confirmed() => {
                    // Too late is too late, whatever the server says.
                    if answer.at > hold.belief.until {
                        return false;
                    }
                    hold.belief.until = answer.sent + L;
                    hold.belief.story += &format!(", EXTEND at {node}");
                    return true;
                }
                Some(Answer { reply: Reply::Error(line), at, .. }) if is_loss(&line) => {
                    hold.belief.until = hold.belief.until.min(at);
                    return false;
                }
                Some(_) => {}
                None if hold.session => {
                    // The connection is closed now, and the lock with it.
                    hold.belief.until = hold.belief.until.min(asked);
                    return false;
                }
                None => self.go_on(),
            }
            self.rest(REST_MS);
        }
        false
    }

    fn extend(&mut self, key: &str, token: &str, limit: Duration) -> Option<Answer> {
        let answer = self.send(&format!("LOCK.EXTEND {key} {token} PX {}", L.as_millis()), limit)?;
        if matches!(&answer.reply, Reply::Error(line) if line.starts_with("TRYAGAIN")) {
            self.field.note_put_off();
        }
        Some(answer)
    }

    /// Sends a line and waits for its reply. None when there is no connection, or no reply in time.
    fn send(&mut self, line: &str, limit: Duration) -> Option<Answer> {
        if self.link.is_none() {
            self.link = Connection::open(self.field.ports.of(self.node), CONNECTING).ok();
        }
        let Some(link) = self.link.as_mut() else {
            self.go_on();
            return None;
        };
        let sent = Instant::now();
        let result = link
            .send(&packed(&bytes_of(line)))
            .and_then(|()| link.set_timeout(limit))
            .map_err(Into::into)
            .and_then(|()| link.receive());
        let at = Instant::now();
        match result {
            Ok(value) => {
                let reply = Reply::of(Ok(value));
                self.judge(&reply);
                Some(Answer { sent, at, reply })
            }
            Err(_) => {
                self.link = None;
                if !self.is_loyal {
                    self.go_on();
                }
                None
            }
        }
    }

    /// Goes elsewhere if the node is not the one to ask.
    fn judge(&mut self, reply: &Reply) {
        let Reply::Error(line) = reply else { return };
        let is_no_master = ["READONLY", "MOVED", "UNBLOCKED"].iter().any(|code| line.starts_with(code));
        if self.is_bound {
            return;
        }
        if is_no_master || !self.is_loyal && !is_loss(line) && !line.starts_with("TRYAGAIN") {
            self.go_on();
        }
    }

    /// Goes to a new master of which it hears.
    fn hear(&mut self) {
        let master = self.field.master();
        if !self.is_loyal && !self.is_bound && master != self.master {
            (self.master, self.node, self.link) = (master, master, None);
        }
    }

    fn go_on(&mut self) {
        self.link = None;
        self.node = (self.node + 1) % NODES;
    }

    fn answer_limit(&self) -> Duration {
        if self.is_loyal { LATE_ANSWER } else { ANSWER }
    }

    fn rest(&mut self, range_ms: Range<u64>) {
        let rest = Duration::from_millis(self.random.u64(range_ms));
        self.field.rest_until(Instant::now() + rest);
    }
}

impl Answer {
    fn is_confirmed(&self) -> bool {
        matches!(self.reply, Reply::Int(_))
    }
}

fn is_loss(line: &str) -> bool {
    line.starts_with("NOTHELD") || line.starts_with("NOTOWNER")
}
