//! A client that waits for each reply: it connects, asks for locks in one of many ways, and checks the replies.

mod holding;
mod pipelines;
mod ways;

use std::time::{Duration, Instant};

use support::Reply;

use super::claim::{Claim, Kind};
use super::{ANSWERED, network};
use crate::evidence::{NOTHING_IN_A_PAUSE, starved};
use crate::link::{Link, PATIENCE};
use crate::report::Rule;
use crate::run::Run;

/// The time that a request may take beyond its BLOCK on a server that does not stall.
const SLACK: Duration = Duration::from_millis(500);
/// One client of this number has a bad network.
const BAD_NETWORKS: usize = 6;
/// The longest wait for a reply in a bad network.
const MAX_PATIENCE_MS: u64 = 1000;
/// The commands that are refused when memory has run out.
const TAKES_MEMORY: [&str; 4] = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE", "LOCK.FENCE"];
const DATED: &str = "grants dated";

/// The end of a request.
#[derive(Debug)]
pub struct Answer {
    pub sent: Instant,
    pub received: Instant,
    /// [`Reply::Closed`] also if the client closed the connection before a reply came.
    pub reply: Reply,
}

pub struct Client<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    number: usize,
    database: u32,
    link: Option<Link>,
}

impl<'r> Client<'r> {
    pub fn new(run: &'r Run, number: usize, random: fastrand::Rng) -> Self {
        Self { run, random, number, database: 0, link: None }
    }

    /// Asks for locks until the run is over.
    pub fn run(mut self) {
        while self.run.goes_on() {
            self.one_way();
            self.link.take_if(|link| link.is_disturbed());
            let pause = Duration::from_micros(self.random.u64(..12_000));
            self.run.think(pause);
        }
    }

    /// Makes the next request go to this database.
    fn go_to(&mut self, database: u32) {
        if self.database != database {
            self.database = database;
            self.link = None;
        }
    }

    fn has_bad_network(&self) -> bool {
        self.number % BAD_NETWORKS == 0
    }

    /// Sends lines in one write, on the open connection or a new one. `None` if it was closed, or the run is over.
    fn send(&mut self, lines: &[String]) -> Option<Instant> {
        self.send_part(lines, 0)
    }

    /// The same without the last `missing` bytes.
    fn send_part(&mut self, lines: &[String], missing: usize) -> Option<Instant> {
        self.link = self.run.current(self.link.take());
        if self.link.is_none() {
            let connect = if self.has_bad_network() { network::connect } else { Run::connect };
            self.link = connect(self.run, self.database, self.random.bool());
        }
        let link = self.link.as_mut()?;
        network::disturb(self.run, link, &mut self.random);
        let sent = if missing == 0 { link.send(lines) } else { link.send_part(lines, missing) };
        self.run.counters.add("requests", lines.len());
        if sent.is_none() {
            self.link = None;
        }
        sent
    }

    /// Reads the reply to the oldest request, which waits for `block` at most, or for ever; closes the connection after
    /// `patience`.
    fn answer(&mut self, claim: &Claim<'_>, block: Option<Duration>, patience: Option<Duration>) -> Answer {
        let request = self.link.as_ref().and_then(Link::oldest);
        let (Some(link), Some(request)) = (&mut self.link, request) else { return Answer::closed() };
        let limit = block.unwrap_or(Duration::from_secs(3600)) + PATIENCE;
        let was_disturbed = link.is_disturbed();
        // A reply that does not come for some time may never come.
        let patience =
            if was_disturbed { Some(Duration::from_millis(self.random.u64(..MAX_PATIENCE_MS))) } else { patience };
        let until = request.sent + patience.map_or(limit, |patience| patience.min(limit));
        let reply = link.receive(until.saturating_duration_since(Instant::now()));
        let (sent, received) = (request.sent, Instant::now());
        self.run.counters.raise("longest wait in ms", (received - sent).as_millis());
        let (port, id) = (link.port(), link.id());
        // A network takes its time, also one that is not disturbed.
        let is_direct = link.path().is_none();
        if let Some(reply) = &reply {
            self.check_pause(claim, port, &request.line, sent, reply);
        }
        if is_direct {
            let stalled = || self.run.stalls.between(sent, received) + starved().saturating_sub(request.starved);
            let took = received - sent;
            let is_late = block.is_some_and(|block| took > block + SLACK && took > block + SLACK + stalled());
            if is_late || reply.is_none() && block.is_some() && patience.is_none() {
                let text = format!("{}: {reply:?} after {took:?}, stalls explain {:?}", request.line, stalled());
                self.run.report_lock(claim.key, ANSWERED, &text);
            }
        }
        if let Some(code) = reply.as_ref().and_then(|reply| self.run.refusal(reply)) {
            self.run.counters.count(code);
            if code == "OOM" && !TAKES_MEMORY.iter().any(|command| request.line.starts_with(command)) {
                let rule = "RELEASE and EXTEND succeed when memory has run out";
                self.run.report_lock(claim.key, rule, &request.line);
            }
        }
        let reply = reply.unwrap_or(Reply::Closed);
        if reply == Reply::Closed || self.run.history.is_unblocked(id) {
            self.link = None;
        }
        Answer { sent, received, reply }
    }

    /// Sends one line and waits for its reply.
    fn ask(&mut self, claim: &Claim<'_>, line: String, block_ms: u64) -> Answer {
        match self.send(&[line]) {
            Some(_) => self.answer(claim, Some(Duration::from_millis(block_ms)), None),
            None => Answer::closed(),
        }
    }

    /// A write that is sent in a pause is answered after it.
    fn check_pause(&self, claim: &Claim<'_>, port: u16, line: &str, sent: Instant, reply: &Reply) {
        let has_written = line.starts_with("LOCK.") && matches!(reply, Reply::Int(_));
        if has_written && self.run.pauses.cover(port, sent, Instant::now()) {
            let text = format!("{line} was sent in a pause, and the reply in it is {reply:?}");
            self.run.report_lock(claim.key, NOTHING_IN_A_PAUSE, &text);
        }
    }

    /// Checks that a lock was not handed over in a pause, if one was during the wait: the end of the lease shows the
    /// time of the grant.
    fn date_grant(&mut self, claim: &Claim<'r>, answer: &Answer) {
        // The key of a shared lock lasts as long as the longest share, and that of a session is renewed.
        let shows =
            claim.kind != Kind::Share && !claim.session && claim.has_one_request() && self.run.has_steady_clock();
        let (Some(port), Some(lease)) = (self.link.as_ref().map(Link::port), claim.lease_ms.filter(|_| shows)) else {
            return;
        };
        if !self.run.pauses.any_between(port, answer.sent, answer.received) {
            return;
        }
        self.run.counters.begin(DATED);
        let leases = self.run.in_force.possible_leases(lease, answer.sent, answer.received);
        let end = self.ask(claim, format!("PEXPIRETIME {}", claim.key.name), 0);
        let ([lease], Reply::Int(end_ms)) = (&leases[..], &end.reply) else { return };
        if !claim.has_lease_at(end.received) {
            return;
        }
        self.run.counters.count(DATED);
        if self.run.pauses.cover_ms(port, end_ms - i64::try_from(*lease).unwrap_or_default()) {
            self.report(claim, NOTHING_IN_A_PAUSE, &format!("its lease of {lease} ms ends at {end_ms}"));
        }
    }

    /// Reports a failure of a strict lock.
    fn report(&self, claim: &Claim<'_>, rule: Rule, what: &str) {
        let text = format!("client {}, {}: {what}", self.number, claim.token);
        self.run.check_strict(claim.key, Some((rule, text)));
    }
}

impl Answer {
    fn closed() -> Self {
        let now = Instant::now();
        Self { sent: now, received: now, reply: Reply::Closed }
    }

    fn has_code(&self, code: &str) -> bool {
        self.reply.is_error() && self.reply.code() == code
    }
}
