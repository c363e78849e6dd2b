//! A client that waits with NOTIFY: it has many waits at the same time on one connection, receives a message at the end
//! of each, on that connection or on another, and now and then loses either.

mod tracker;
mod wait;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use support::Reply;

use super::network;
use crate::history::{EXPECTED, Request};
use crate::link::Link;
use crate::report::Rule;
use crate::run::Run;
use crate::token::Token;
use tracker::{IN_TIME, Tracker};
use wait::{Phase, Step, Wait};

const NAMED: Rule = "a message names its wait";
const MAX_WAITS: usize = 30;
/// The longest time between the beginnings of two waits.
const MAX_PAUSE_US: u64 = 8000;
/// How long it waits for each connection.
const TICK: Duration = Duration::from_millis(1);
/// The longest time until this client learns that the connection of its listener is closed.
const CLOSING: Duration = Duration::from_secs(2);

pub struct Notified<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    database: u32,
    channels: [String; 2],
    asking: Option<Link>,
    /// `None` also if the connection that asks listens, with RESP3.
    listening: Option<Link>,
    on_one_connection: bool,
    blocking: Vec<Link>,
    /// Since when both subscriptions are confirmed, and how many are.
    listens: Option<Instant>,
    confirmed: usize,
    waits: HashMap<Token, Wait<'r>>,
    /// Those that are over: a message that comes now is one too many.
    past: HashMap<Token, Wait<'r>>,
    next_wait: Instant,
    /// A reply was NOSUBSCRIBER although the listener looks connected.
    suspect: Option<(Instant, Token)>,
}

impl<'r> Notified<'r> {
    pub fn new(run: &'r Run, database: u32, random: fastrand::Rng) -> Self {
        Self {
            run,
            random,
            database,
            channels: ["first", "second"].map(|name| format!("{name}{database}")),
            asking: None,
            listening: None,
            on_one_connection: false,
            blocking: Vec::new(),
            listens: None,
            confirmed: 0,
            waits: HashMap::new(),
            past: HashMap::new(),
            next_wait: Instant::now(),
            suspect: None,
        }
    }

    pub fn run(mut self) {
        while self.run.goes_on() {
            self.connect();
            self.begin_waits();
            self.take_steps();
            self.disturb();
            let now = Instant::now();
            self.read();
            self.check_times(now);
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
        let lines: Vec<String> = commands.iter().map(|word| format!("{word} {}", self.channels.join(" "))).collect();
        // If the connection is closed, the next read finds that.
        self.listening.as_mut().or(self.asking.as_mut()).map(|link| link.send(&lines));
    }

    /// Nothing listens any more: messages can get lost.
    fn unheard(&mut self) {
        (self.listens, self.confirmed, self.suspect) = (None, 0, None);
        self.waits.values_mut().flat_map(|wait| &mut wait.trackers).for_each(Tracker::unheard);
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
                wait.trackers.iter_mut().for_each(Tracker::closed);
                if wait.claim.session {
                    (wait.phase, wait.next) = (Phase::Over, None);
                } else if wait.is_released() {
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
            let withdraws = wait.is_released() || self.random.u8(..4) == 0;
            wait.next = Some((now, if withdraws { Step::Release } else { Step::Ask(0) }));
            self.run.counters.count("waits asked for again");
        }
    }

    fn begin_waits(&mut self) {
        let now = Instant::now();
        let wanted = self.random.usize(1..MAX_WAITS);
        while self.listens.is_some() && self.asking.is_some() && self.waits.len() < wanted && self.next_wait <= now {
            self.next_wait += Duration::from_micros(self.random.u64(..MAX_PAUSE_US));
            let key = self.run.keys.in_database(self.database, &mut self.random);
            let wait = Wait::new(self.run, key, &mut self.random);
            let token = wait.claim.token;
            self.waits.insert(token, wait);
            self.step(token, Step::Ask(0));
        }
    }

    /// Takes the planned step of each wait that is due.
    fn take_steps(&mut self) {
        if self.asking.is_none() || self.listens.is_none() {
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
            Step::Ask(channel) => {
                let (line, block) = wait.request(self.run, &mut self.random);
                let sent = self.send(format!("{line} NOTIFY {}", self.channels[channel]));
                let asked = self.waits.get_mut(&token).zip(sent);
                asked.into_iter().for_each(|(wait, sent)| wait.trackers[channel].asked(sent, block));
            }
            Step::Release => {
                wait.trackers.iter_mut().for_each(|tracker| tracker.is_released = true);
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
                self.run.counters.count("copies that block");
            }
        }
    }

    /// Sends a line on the connection that asks, sometimes in a transaction.
    fn send(&mut self, line: String) -> Option<Instant> {
        let asking = self.asking.as_mut()?;
        let in_transaction = self.random.u8(..8) == 0;
        let lines = if in_transaction { vec!["MULTI".to_owned(), line, "EXEC".to_owned()] } else { vec![line] };
        self.run.counters.add("requests", lines.len());
        if in_transaction {
            self.run.counters.count("transactions");
        }
        asking.send(&lines)
    }

    /// Loses a connection now and then, or does not listen for a moment.
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
            2 if self.listens.is_some() => {
                self.listen(&["SUNSUBSCRIBE", "SSUBSCRIBE"]);
                self.unheard();
                self.run.counters.count("moments without a listener");
            }
            _ => {}
        }
    }

    /// Checks that each request is answered and each wait ends in time, and puts aside the waits that are over.
    fn check_times(&mut self, now: Instant) {
        for wait in self.waits.values() {
            for (since, late) in wait.trackers.iter().filter_map(|tracker| tracker.overdue(now)) {
                let stalled = self.run.evidence.stalls.between(since, now);
                let text = || format!("{}: {late:?} late, stalls explain {stalled:?}", wait.claim.token);
                self.run.check_any(wait.claim.key, (late > stalled).then(|| (IN_TIME, text())));
            }
        }
        self.asking.iter().chain(&self.blocking).for_each(Link::check_late);
        if let Some((_, token)) = self.suspect.take_if(|(at, _)| now > *at + CLOSING) {
            self.run.fails(EXPECTED, format!("the reply to {token} is NOSUBSCRIBER, and there was a listener"));
        }
        let is_over = |wait: &&Wait<'_>| wait.phase == Phase::Over && !wait.trackers.iter().any(|own| own.waits);
        let tokens: Vec<Token> = self.waits.values().filter(is_over).map(|wait| wait.claim.token).collect();
        self.past.extend(tokens.iter().filter_map(|token| self.waits.remove_entry(token)));
    }

    /// Reads all that the server has sent.
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
        let Some(wait) = self.waits.get_mut(&token).or_else(|| self.past.get_mut(&token)) else { return };
        if request.line.starts_with("LOCK.RELEASE") {
            wait.phase = Phase::Over;
            return;
        }
        let channel = self.channels.iter().position(|channel| request.line.ends_with(&format!(" NOTIFY {channel}")));
        let waits = *reply == Reply::waiting();
        let finding = channel.and_then(|channel| wait.trackers[channel].answered(waits));
        // On another connection a copy can have been granted the lock after the release.
        if *reply == 1 && !wait.is_released() {
            wait.is_granted(at, &mut self.random);
        } else if waits {
            self.run.counters.count("waits for a message");
            wait.waits(at, &mut self.random);
        } else if reply.is_error() && reply.code() == "NOSUBSCRIBER" {
            self.run.counters.count("NOSUBSCRIBER");
            // This client may learn later that its listener is lost.
            let has_listened = self.listens.is_some_and(|since| request.sent > since);
            self.suspect = has_listened.then_some((at, token)).or(self.suspect);
        }
        if channel.is_some() {
            wait.settle(at, true);
        }
        let key = wait.claim.key;
        self.run.check_any(key, finding.map(|(rule, what)| (rule, format!("{token}: {what}"))));
    }

    /// Takes in what the server sends to a listener.
    fn hear(&mut self, parts: &[Reply], at: Instant) {
        match parts {
            [kind, channel, Reply::Text(text)] if *kind == "smessage" => {
                let channel = usize::from(*channel == self.channels[1].as_str());
                let text = String::from_utf8_lossy(text);
                if self.message(channel, &text, at).is_none() {
                    self.run.fails(NAMED, text);
                }
            }
            [kind, ..] if *kind == "ssubscribe" => {
                self.confirmed += 1;
                if self.confirmed == self.channels.len() {
                    self.listens = Some(at);
                    self.ask_again();
                }
            }
            _ => {}
        }
    }

    /// Takes in a message; `None` if it does not name a wait.
    fn message(&mut self, channel: usize, text: &str, at: Instant) -> Option<()> {
        let words: Vec<&str> = text.splitn(5, ' ').collect();
        let &[event, end, database, token, key] = &words[..] else { return None };
        let counters = ["messages: granted", "messages: timeout", "messages: withdrawn", "messages: lost"];
        let counter = counters.into_iter().find(|name| name.ends_with(event))?;
        let id = Token::read(token.as_bytes())?;
        let wait = self.waits.get_mut(&id).or_else(|| self.past.get_mut(&id))?;
        let is_named = key == wait.claim.key.name && database == wait.claim.key.database.to_string();
        is_named.then(|| self.run.counters.count(counter))?;
        self.run.message(self.run.port_of(self.database), wait.claim.key, at, [event, end, token]);
        let may_be_lost = self.run.evidence.changes.any_since(wait.begun);
        let finding = wait.trackers[channel].heard(event, at, may_be_lost);
        if event == "granted" {
            self.run.counters.count("grants");
            wait.is_granted(at, &mut self.random);
        } else {
            wait.settle(at, false);
        }
        let key = wait.claim.key;
        self.run.check_any(key, finding.map(|(rule, what)| (rule, format!("{token}: {what}"))));
        Some(())
    }
}
