//! A client that waits with NOTIFY: it has many waits at the same time on one connection, receives a message at the end
//! of each, on that connection or on another, and now and then loses either.

mod wait;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use support::Reply;

use super::network;
use crate::evidence::since_now;
use crate::history::Request;
use crate::link::Link;
use crate::report::Rule;
use crate::run::Run;
use crate::token::Token;
use wait::{Phase, Step, Wait};

const IN_TIME: Rule = "each wait ends with a message in time";
const NAMED: Rule = "a message names its wait";
const MAX_WAITS: usize = 30;
const MAX_PAUSE_US: u64 = 8000;
/// How long it waits for each connection.
const TICK: Duration = Duration::from_millis(1);

pub struct Notified<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    database: u32,
    channel: String,
    asking: Option<Link>,
    /// `None` also if the connection that asks listens, with RESP3.
    listening: Option<Link>,
    on_one_connection: bool,
    blocking: Vec<Link>,
    listens: bool,
    waits: HashMap<Token, Wait<'r>>,
    next_wait: Instant,
}

impl<'r> Notified<'r> {
    pub fn new(run: &'r Run, database: u32, random: fastrand::Rng) -> Self {
        Self {
            run,
            random,
            database,
            channel: format!("notified{database}"),
            asking: None,
            listening: None,
            on_one_connection: false,
            blocking: Vec::new(),
            listens: false,
            waits: HashMap::new(),
            next_wait: Instant::now(),
        }
    }

    pub fn run(mut self) {
        while self.run.goes_on() {
            self.connect();
            self.begin_waits();
            self.take_steps();
            self.disturb();
            self.read();
            self.check_times();
        }
    }

    /// Leaves a server that has been replaced, opens the connections that are not open, and listens.
    fn connect(&mut self) {
        let port = self.run.port_of(self.database);
        let listened = self.listening.take_if(|link| link.port() != port).is_some();
        let asked = self.asking.take_if(|link| link.port() != port).is_some();
        self.lost(asked, listened);
        if self.asking.is_none() {
            self.on_one_connection = self.random.bool();
            let resp3 = self.on_one_connection || self.random.bool();
            self.asking = self.open(resp3);
            if self.asking.is_some() && self.on_one_connection {
                self.run.counters.count("connections that ask and listen");
                self.listening = None;
                self.unheard();
                self.listen(&["SSUBSCRIBE"]);
            }
        }
        if self.asking.is_some() && !self.on_one_connection && self.listening.is_none() {
            let resp3 = self.random.bool();
            self.listening = self.open(resp3);
            self.listen(&["SSUBSCRIBE"]);
        }
    }

    fn open(&mut self, resp3: bool) -> Option<Link> {
        let connect = if self.random.u8(..4) == 0 { network::connect } else { Run::connect };
        let link = connect(self.run, self.database, resp3)?;
        network::reset_soon(self.run, &link, &mut self.random);
        Some(link)
    }

    fn listen(&mut self, commands: &[&str]) {
        let lines: Vec<String> = commands.iter().map(|word| format!("{word} {}", self.channel)).collect();
        // If the connection is closed, the next read finds that.
        self.listening.as_mut().or(self.asking.as_mut()).map(|link| link.send(&lines));
    }

    /// Nothing listens any more: messages can get lost.
    fn unheard(&mut self) {
        self.listens = false;
        self.waits.values_mut().for_each(|wait| wait.message.ends());
    }

    /// The connections that asked and that listened are closed.
    fn lost(&mut self, asked: bool, listened: bool) {
        if listened || asked && self.on_one_connection {
            self.unheard();
        }
        if asked {
            // Its requests are detached, and its sessions over.
            let now = Instant::now();
            for wait in self.waits.values_mut() {
                wait.message.closed();
                if wait.claim.session {
                    (wait.phase, wait.next) = (Phase::Over, None);
                } else if wait.is_released {
                    wait.next = Some((now, Step::Release));
                }
            }
            if !self.on_one_connection {
                self.ask_again();
            }
        }
    }

    /// Asks again, with the same tokens, for all that a message can have been lost of.
    fn ask_again(&mut self) {
        let now = Instant::now();
        for wait in self.waits.values_mut().filter(|wait| wait.phase == Phase::Waiting) {
            let withdraws = wait.is_released || self.random.u8(..4) == 0;
            wait.next = Some((now, if withdraws { Step::Release } else { Step::Ask }));
            self.run.counters.count("waits asked for again");
        }
    }

    fn begin_waits(&mut self) {
        let now = Instant::now();
        let wanted = self.random.usize(1..MAX_WAITS);
        while self.listens && self.asking.is_some() && self.waits.len() < wanted && self.next_wait <= now {
            self.next_wait += Duration::from_micros(self.random.u64(..MAX_PAUSE_US));
            let key = self.run.keys.in_database(self.database, &mut self.random);
            let wait = Wait::new(self.run, key, &mut self.random);
            let token = wait.claim.token;
            self.waits.insert(token, wait);
            self.step(token, Step::Ask);
        }
    }

    fn take_steps(&mut self) {
        if self.asking.is_none() || !self.listens {
            return;
        }
        let now = Instant::now();
        let due =
            |wait: &mut Wait<'_>| wait.next.take_if(|(at, _)| *at <= now).map(|(_, step)| (wait.claim.token, step));
        let steps: Vec<(Token, Step)> = self.waits.values_mut().filter_map(due).collect();
        steps.into_iter().for_each(|(token, step)| self.step(token, step));
    }

    fn step(&mut self, token: Token, step: Step) {
        let Some(wait) = self.waits.get_mut(&token) else { return };
        match step {
            Step::Ask => {
                let (line, block) = wait.request(self.run, &mut self.random);
                wait.message.asked(since_now(), block);
                let line = format!("{line} NOTIFY {}", self.channel);
                self.send(line);
            }
            Step::Release => {
                wait.is_released = true;
                let line = wait.claim.release();
                self.send(line);
            }
            Step::Forget => {
                self.run.abandon(wait.claim.key, token);
                wait.phase = Phase::Over;
            }
            Step::Block => {
                let (line, _) = wait.request(self.run, &mut self.random);
                let Some(mut link) = self.open(true) else { return };
                link.send(&[line]);
                self.blocking.push(link);
                self.run.counters.add("requests", 1);
                self.run.counters.count("repeats that block");
            }
        }
    }

    /// Sends a line on the connection that asks, sometimes in a transaction.
    fn send(&mut self, line: String) {
        let Some(asking) = &mut self.asking else { return };
        let in_transaction = self.random.u8(..8) == 0;
        let lines = if in_transaction { vec!["MULTI".to_owned(), line, "EXEC".to_owned()] } else { vec![line] };
        self.run.counters.add("requests", lines.len());
        if in_transaction {
            self.run.counters.count("transactions");
        }
        // If the connection is closed, the next read finds that.
        asking.send(&lines);
    }

    fn disturb(&mut self) {
        match self.random.u16(..800) {
            0 if self.asking.take().is_some() => {
                self.lost(true, false);
                self.run.counters.count("asking connections closed");
            }
            1 if self.listening.take().is_some() => {
                self.lost(false, true);
                self.run.counters.count("listening connections closed");
            }
            2 if self.listens => {
                self.listen(&["SUNSUBSCRIBE", "SSUBSCRIBE"]);
                self.unheard();
                self.run.counters.count("moments without a listener");
            }
            _ => {}
        }
    }

    /// Checks that each request is answered and each wait ends in time, and forgets the waits that are over.
    fn check_times(&mut self) {
        for wait in self.waits.values() {
            let owed = wait.message.owed();
            let late = owed.and_then(|(since, limit)| self.run.evidence.stalls.late(since, limit));
            let text = |late| format!("{}: {late}", wait.claim.token);
            self.run.check(wait.claim.key, late.map(|late| (IN_TIME, text(late))));
        }
        self.asking.iter().chain(&self.blocking).for_each(Link::check_late);
        self.waits.retain(|_, wait| wait.phase != Phase::Over || wait.message.owed().is_some());
    }

    fn read(&mut self) {
        for is_asker in [true, false] {
            let Some(mut link) = (if is_asker { self.asking.take() } else { self.listening.take() }) else { continue };
            let mut is_open = true;
            while let Some((request, reply)) = link.poll(TICK).filter(|_| is_open) {
                is_open = reply != Reply::Closed;
                match (reply, request) {
                    (Reply::Push(parts) | Reply::List(parts), None) => self.hear(&parts, Instant::now()),
                    (reply, Some(request)) => self.answered(&request, &reply, Instant::now()),
                    _ => {}
                }
            }
            match is_open {
                true if is_asker => self.asking = Some(link),
                true => self.listening = Some(link),
                false => self.lost(is_asker, !is_asker),
            }
        }
        for mut link in std::mem::take(&mut self.blocking) {
            // A client that was unblocked can get one reply too many, so nothing else is sent on this connection.
            match link.poll(Duration::ZERO) {
                None => self.blocking.push(link),
                Some((Some(request), reply)) => self.answered(&request, &reply, Instant::now()),
                Some(_) => {}
            }
        }
    }

    fn answered(&mut self, request: &Request, reply: &Reply, at: Instant) {
        let Some(token) = request.operation.as_ref().map(|operation| operation.token) else { return };
        let Some(wait) = self.waits.get_mut(&token) else { return };
        if request.line.starts_with("LOCK.RELEASE") {
            wait.phase = Phase::Over;
            return;
        }
        let (waits, is_notified) = (*reply == Reply::waiting(), request.line.contains(" NOTIFY "));
        if is_notified {
            wait.message.answered(waits);
        }
        // On another connection an earlier request can have been granted the lock after the release.
        if *reply == 1 && !wait.is_released {
            wait.is_granted(at, &mut self.random);
        } else if waits {
            self.run.counters.count("waits for a message");
            wait.waits(at, &mut self.random);
        } else if reply.is_error() && reply.code() == "NOSUBSCRIBER" {
            self.run.counters.count("NOSUBSCRIBER");
        }
        if reply.is_error() && reply.code() == "REPLACED" {
            self.run.counters.count("REPLACED");
        }
        wait.settle();
    }

    fn hear(&mut self, parts: &[Reply], at: Instant) {
        match parts {
            [kind, _, Reply::Text(text)] if *kind == "smessage" => {
                let text = String::from_utf8_lossy(text);
                if self.message(&text, at).is_none() {
                    self.run.fails(NAMED, text);
                }
            }
            [kind, ..] if *kind == "ssubscribe" => {
                self.listens = true;
                self.ask_again();
            }
            _ => {}
        }
    }

    /// Takes in a message; `None` if it does not name a wait.
    fn message(&mut self, text: &str, at: Instant) -> Option<()> {
        let words: Vec<&str> = text.splitn(5, ' ').collect();
        let &[event, end, database, token, key] = &words[..] else { return None };
        let ends = ["messages: timeout", "messages: withdrawn", "messages: replaced", "messages: lost"];
        let counter = ["messages: granted"].into_iter().chain(ends).find(|name| name.ends_with(event))?;
        let key = self.run.keys.named(database.parse().ok()?, key)?;
        self.run.counters.count(counter);
        self.run.message(self.run.port_of(self.database), key, at, [event, end, token]);
        let Some(wait) = self.waits.get_mut(&Token::read(token.as_bytes())?) else { return Some(()) };
        wait.message.ends();
        if event == "granted" {
            self.run.counters.count("grants");
            wait.is_granted(at, &mut self.random);
        } else if event != "replaced" {
            // A replaced request goes on as the one that has taken its place, on another connection.
            wait.settle();
        }
        Some(())
    }
}
