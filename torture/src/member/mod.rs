//! A client: it connects, asks for locks in one of many ways, and checks what it is told.

mod claim;
mod dating;
mod holding;
mod pipelines;
mod repeats;
mod shares;
mod ways;

pub use claim::{Claim, Kind};
pub use holding::{EXPECTED, KEPT, SESSION};

use std::time::{Duration, Instant};

use support::Reply;

use crate::link::Link;
use crate::network;
use crate::pulse::starved;
use crate::world::World;

/// What a request may take beyond its BLOCK on a server that is held up by nothing.
const SLACK: Duration = Duration::from_millis(500);
/// When a client gives up on an answer, above all that its BLOCK and faults can explain.
const GIVE_UP: Duration = Duration::from_secs(20);

/// One of so many clients has a bad network.
const BAD_NETWORKS: usize = 6;

/// How long a client waits for an answer when its network is bad.
const MOST_PATIENCE_MS: u64 = 1000;
/// The commands that are refused when memory has run out.
const TAKES_MEMORY: [&str; 3] = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"];

/// How a request ended.
#[derive(Debug)]
pub struct Answer {
    pub sent: Instant,
    pub received: Instant,
    /// [`Reply::Closed`] also where the client hung up before an answer came.
    pub reply: Reply,
}

/// One client.
pub struct Member<'w> {
    world: &'w World,
    random: fastrand::Rng,
    number: usize,
    database: u32,
    link: Option<Link>,
}

impl<'w> Member<'w> {
    pub fn new(world: &'w World, number: usize, random: fastrand::Rng) -> Self {
        Self { world, random, number, database: 0, link: None }
    }

    /// Asks for locks until the run is over.
    pub fn run(mut self) {
        while self.world.goes_on() {
            self.one_way();
            self.link.take_if(|link| link.is_disturbed());
            let pause = Duration::from_micros(self.random.u64(..12_000));
            self.world.rest(pause);
        }
    }

    /// Makes the next request go to this database.
    fn go_to(&mut self, database: u32) {
        if self.database != database {
            self.database = database;
            self.link = None;
        }
    }

    fn hang_up(&mut self) {
        self.link = None;
    }

    /// Sends lines in one write, on the open connection or else a new one. None when it was closed, or the run is over.
    fn send(&mut self, claim: &Claim<'_>, lines: &[String]) -> Option<Instant> {
        self.send_part(claim, lines, 0)
    }

    fn has_bad_network(&self) -> bool {
        self.number % BAD_NETWORKS == 0
    }

    /// The same, but for so many bytes at the end.
    fn send_part(&mut self, claim: &Claim<'_>, lines: &[String], missing: usize) -> Option<Instant> {
        self.link = self.world.still(self.link.take());
        if self.link.is_none() {
            let connect = if self.has_bad_network() { network::connect } else { World::connect };
            self.link = connect(self.world, self.database, self.random.bool());
        }
        let link = self.link.as_mut()?;
        network::disturb(self.world, link, &mut self.random);
        let (sent, id) = (link.send_part(lines, missing), link.id());
        self.world.figures.requests.add(lines.len() as u64);
        match sent {
            Some(at) => self.note(claim, at, format!("(connection {id}) sends {}", lines.join(" and "))),
            None => self.link = None,
        }
        sent
    }

    /// Reads the answer to a request that waits for `block` at most, or for ever; hangs up after `patience`.
    fn answer(
        &mut self,
        claim: &Claim<'_>,
        what: &str,
        sent: Instant,
        block: Option<Duration>,
        patience: Option<Duration>,
    ) -> Answer {
        let limit = block.unwrap_or(Duration::from_secs(3600)) + GIVE_UP;
        let mut disturbed = self.link.as_ref().is_some_and(Link::is_disturbed);
        // What does not come for some time may never come.
        let patience =
            if disturbed { Some(Duration::from_millis(self.random.u64(..MOST_PATIENCE_MS))) } else { patience };
        let until = sent + patience.map_or(limit, |patience| patience.min(limit));
        let left = until.saturating_duration_since(Instant::now());
        let starved_before = starved();
        let reply = self.link.as_mut().map_or(Some(Reply::Closed), |link| link.receive(left));
        let received = Instant::now();
        let starved = starved().saturating_sub(starved_before);
        match &reply {
            Some(reply) => self.note(claim, received, format!("is told {reply:?} to {what}")),
            None => self.note(claim, received, format!("hangs up on {what}")),
        }
        self.world.figures.waited(received - sent);
        if let Some(reply) = &reply {
            self.check_pause(claim, what, sent, received, reply);
        }
        disturbed |= self.link.as_ref().is_some_and(Link::is_disturbed);
        // A network takes its time, also one that does nothing wrong.
        let is_direct = self.link.as_ref().is_none_or(|link| link.way().is_none());
        if is_direct && !disturbed {
            self.check_time(claim, what, (sent, received), block, starved);
            if reply.is_none() && block.is_some() && patience.is_none() {
                let text = format!("client {}, {what}: not answered within {limit:?}", self.number);
                self.world.accuse(claim.key, "every request is answered", &text);
            }
        }
        if let Some(code) = reply.as_ref().and_then(|reply| self.world.refusal(reply)) {
            self.world.figures.fault(code);
            self.check_refusal(claim, what, code);
        }
        let reply = reply.unwrap_or(Reply::Closed);
        let unblocked = self.link.as_ref().is_some_and(|link| self.world.unblocked.contains(link.id()));
        if reply == Reply::Closed || unblocked {
            self.link = None;
        }
        Answer { sent, received, reply }
    }

    /// Every request is answered, or its connection closed, when its BLOCK is over. What the client itself was starved of the
    /// processor is not the server's.
    fn check_time(
        &self,
        claim: &Claim<'_>,
        what: &str,
        (sent, received): (Instant, Instant),
        block: Option<Duration>,
        starved: Duration,
    ) {
        let Some(block) = block else { return };
        let took = received - sent;
        if took <= block + SLACK {
            return;
        }
        let bad = self.world.weather.between(sent, received) + starved;
        if took > block + SLACK + bad {
            let number = self.number;
            let text =
                format!("client {number}, {what}: answered, or given up, after {took:?}; faults explain {bad:?}");
            self.world.accuse(claim.key, "every request is answered", &text);
        }
    }

    /// Who gives something back, or only sets a time, needs no memory.
    fn check_refusal(&self, claim: &Claim<'_>, what: &str, code: &str) {
        if code == "OOM" && !TAKES_MEMORY.iter().any(|command| what.starts_with(command)) {
            self.world.accuse(claim.key, "RELEASE and EXTEND go through when memory has run out", what);
        }
    }

    /// Sends one line and waits for its answer.
    fn ask(&mut self, claim: &Claim<'_>, line: String, block_ms: u64) -> Answer {
        match self.send(claim, std::slice::from_ref(&line)) {
            Some(sent) => self.answer(claim, &line, sent, Some(Duration::from_millis(block_ms)), None),
            None => Answer::closed(),
        }
    }

    fn note(&self, claim: &Claim<'_>, at: Instant, what: String) {
        let text = format!("client {:2} {what}", self.number);
        self.world.ledger.note(claim.key.number, at, text);
    }

    /// Reports what is wrong with a claim's lock.
    fn charge(&self, claim: &Claim<'_>, rule: &'static str, what: &str) {
        self.world.charge(claim.key, rule, &format!("client {}, {}: {what}", self.number, claim.token));
    }
}

impl Answer {
    fn closed() -> Self {
        let now = Instant::now();
        Self { sent: now, received: now, reply: Reply::Closed }
    }
}
