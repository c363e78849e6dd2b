//! A client that waits for each reply: it connects, and asks for locks in one of many ways.

mod holding;
mod pipelines;
mod ways;

use std::time::{Duration, Instant};

use support::Reply;

use super::claim::Claim;
use super::network;
use crate::link::{Link, PATIENCE};
use crate::run::Run;

/// One client of this number has a bad network.
const BAD_NETWORKS: usize = 6;
const MAX_PATIENCE_MS: u64 = 1000;
/// The time after which a client that waits without an end gives it up.
const WITHOUT_END: Duration = Duration::from_secs(3600);

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

    pub fn run(mut self) {
        while self.run.goes_on() {
            self.one_way();
            self.link.take_if(|link| network::is_disturbed(link));
            let pause = Duration::from_micros(self.random.u64(..12_000));
            self.run.think(pause);
        }
    }

    fn go_to(&mut self, database: u32) {
        if self.database != database {
            self.database = database;
            self.link = None;
        }
    }

    fn has_bad_network(&self) -> bool {
        self.number % BAD_NETWORKS == 0
    }

    /// Sends lines in one write, without the last `missing` bytes, on the open connection or a new one. `None` if it
    /// was closed, or the run is over.
    fn send_part(&mut self, lines: &[String], missing: usize) -> Option<Instant> {
        self.link = self.run.current(self.link.take());
        if self.link.is_none() {
            let connect = if self.has_bad_network() { network::connect } else { Run::connect };
            self.link = connect(self.run, self.database, self.random.bool());
        }
        let link = self.link.as_mut()?;
        network::disturb(self.run, link, &mut self.random);
        let sent = link.send_part(lines, missing);
        self.run.counters.add("requests", lines.len());
        self.link.take_if(|_| sent.is_none());
        sent
    }

    /// Reads the reply to the oldest request; closes the connection if none comes within `patience`.
    fn answer(&mut self, patience: Option<Duration>) -> Reply {
        let Some((link, request)) = self.link.as_mut().and_then(|link| link.oldest().map(|oldest| (link, oldest)))
        else {
            return Reply::Closed;
        };
        let limit = request.block.unwrap_or(WITHOUT_END) + PATIENCE;
        // A reply that does not come for some time may never come.
        let disturbed = network::is_disturbed(link).then(|| Duration::from_millis(self.random.u64(..MAX_PATIENCE_MS)));
        let until = request.since.0 + disturbed.or(patience).map_or(limit, |patience| patience.min(limit));
        let reply = link.receive(until.saturating_duration_since(Instant::now())).unwrap_or(Reply::Closed);
        if reply == Reply::Closed || self.run.is_unblocked(link.id()) {
            self.link = None;
        }
        reply
    }

    fn ask(&mut self, line: String) -> Reply {
        self.ask_with_patience(line, None)
    }

    fn ask_with_patience(&mut self, line: String, patience: Option<Duration>) -> Reply {
        if self.send_part(&[line], 0).is_some() { self.answer(patience) } else { Reply::Closed }
    }
}
