//! A client that waits with NOTIFY: it has many waits at the same time on one connection, receives a message at the end
//! of each, on that connection or on another, and now and then loses either.

mod tracker;
mod wait;
mod wire;

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use support::Reply;

use super::network;
use crate::history::{EXPECTED, Request};
use crate::report::Rule;
use crate::run::Run;
use crate::token::Token;
use tracker::{Event, IN_TIME, Tracker};
use wait::{Phase, Step, Wait};
use wire::{Received, Wire};

const NAMED: Rule = "a message names its wait";
const MAX_WAITS: usize = 30;
/// The longest time between the beginnings of two waits.
const MAX_PAUSE_US: u64 = 8000;
const TICK: Duration = Duration::from_millis(2);
/// The longest time until this client learns that the connection of its listener is closed.
const CLOSING: Duration = Duration::from_secs(2);
/// The time that a reply may take on a server that does not stall.
const SLACK: Duration = Duration::from_millis(500);

pub struct Notified<'r> {
    run: &'r Run,
    random: fastrand::Rng,
    database: u32,
    channels: [String; 2],
    received: (Sender<Received>, Receiver<Received>),
    wires: u64,
    asking: Option<Wire>,
    /// The connection that asks is the one that listens, with RESP3.
    on_one_connection: bool,
    listening: Option<Wire>,
    blocking: Vec<Wire>,
    /// Since when both subscriptions are confirmed, and how many are.
    listens: Option<Instant>,
    confirmed: usize,
    waits: HashMap<Token, Wait<'r>>,
    next_wait: Instant,
    past: HashMap<Token, Wait<'r>>,
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
            received: mpsc::channel(),
            wires: 0,
            asking: None,
            on_one_connection: false,
            listening: None,
            blocking: Vec::new(),
            listens: None,
            confirmed: 0,
            waits: HashMap::new(),
            next_wait: Instant::now(),
            past: HashMap::new(),
            suspect: None,
        }
    }

    /// Asks for locks until the run is over.
    pub fn run(mut self) {
        while self.run.goes_on() {
            self.leave_old_server();
            self.connect();
            self.begin_waits();
            self.take_steps();
            self.disturb();
            if let Ok(received) = self.received.1.recv_timeout(TICK) {
                self.take_in(received);
            }
            let now = Instant::now();
            while let Ok(received) = self.received.1.try_recv() {
                self.take_in(received);
            }
            self.check_times(now);
        }
    }

    fn leave_old_server(&mut self) {
        let port = self.run.port_of(self.database);
        if self.listening.take_if(|wire| wire.port != port).is_some() {
            self.listener_is_lost();
        }
        if self.asking.take_if(|wire| wire.port != port).is_some() {
            self.asker_is_lost();
        }
    }

    /// Opens the connections that are not open, and listens.
    fn connect(&mut self) {
        if self.asking.is_none() {
            self.on_one_connection = self.random.bool();
            let resp3 = self.on_one_connection || self.random.bool();
            self.asking = self.open(resp3);
            if self.asking.is_some() && self.on_one_connection {
                self.run.counters.count("connections that ask and listen");
                self.listening = None;
                self.listener_is_lost();
                self.listen(&["SSUBSCRIBE"]);
            }
        }
        if self.asking.is_some() && !self.on_one_connection && self.listening.is_none() {
            let resp3 = self.random.bool();
            self.listening = self.open(resp3);
            self.listen(&["SSUBSCRIBE"]);
        }
    }

    fn open(&mut self, resp3: bool) -> Option<Wire> {
        let connect = if self.random.u8(..4) == 0 { network::connect } else { Run::connect };
        let link = connect(self.run, self.database, resp3)?;
        network::reset_soon(self.run, &link, &mut self.random);
        self.wires += 1;
        Wire::of(link, self.wires, self.received.0.clone())
    }

    fn listen(&mut self, commands: &[&str]) {
        let lines: Vec<String> = commands.iter().map(|word| format!("{word} {}", self.channels.join(" "))).collect();
        if let Some(wire) = self.listening.as_mut().or(self.asking.as_mut()) {
            wire.sender.send(&lines);
        }
    }

    /// Nothing listens any more: messages can get lost.
    fn listener_is_lost(&mut self) {
        (self.listens, self.confirmed, self.suspect) = (None, 0, None);
        self.trackers().for_each(Tracker::unheard);
    }

    /// The connection that asks is closed: its requests are detached, and its sessions over.
    fn asker_is_lost(&mut self) {
        self.trackers().for_each(Tracker::closed);
        self.waits.values_mut().for_each(Wait::asker_is_lost);
        if self.on_one_connection {
            self.listener_is_lost();
        } else {
            self.ask_again();
        }
    }

    fn trackers(&mut self) -> impl Iterator<Item = &mut Tracker> {
        self.waits.values_mut().flat_map(|wait| &mut wait.trackers)
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
            self.ask(token, 0);
        }
    }

    /// Sends the request of a wait.
    fn ask(&mut self, token: Token, channel: usize) {
        let Some(wait) = self.waits.get(&token) else { return };
        let (line, block) = wait.request(self.run, &mut self.random);
        if let Some(sent) = self.send(format!("{line} NOTIFY {}", self.channels[channel])) {
            self.waits.get_mut(&token).into_iter().for_each(|wait| wait.trackers[channel].asked(sent, block));
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
        Some(asking.sender.send(&lines))
    }

    fn release(&mut self, token: Token) {
        let Some(wait) = self.waits.get_mut(&token) else { return };
        wait.trackers.iter_mut().for_each(|tracker| tracker.released = true);
        let line = wait.claim.release();
        self.send(line);
    }

    /// Sends a copy of the request that blocks a connection of its own.
    fn ask_and_block(&mut self, token: Token) {
        let Some(mut wire) = self.open(true) else { return };
        let Some(wait) = self.waits.get(&token) else { return };
        wire.sender.send(&[wait.request(self.run, &mut self.random).0]);
        self.blocking.push(wire);
        self.run.counters.add("requests", 1);
        self.run.counters.count("copies that block");
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
        for (token, step) in steps {
            match step {
                Step::Ask(channel) => self.ask(token, channel),
                Step::Block => self.ask_and_block(token),
                Step::Release => self.release(token),
                Step::Forget => {
                    if let Some(wait) = self.waits.get_mut(&token) {
                        self.run.abandon(wait.claim.key, token);
                        wait.phase = Phase::Over;
                    }
                }
            }
        }
    }

    /// Loses a connection now and then, or does not listen for a moment.
    fn disturb(&mut self) {
        match self.random.u16(..800) {
            0 if self.asking.take().is_some() => {
                self.asker_is_lost();
                self.run.counters.count("asking connections closed");
            }
            1 if self.listening.take().is_some() => {
                self.listener_is_lost();
                self.run.counters.count("listening connections closed");
            }
            2 if self.listens.is_some() => {
                self.listen(&["SUNSUBSCRIBE", "SSUBSCRIBE"]);
                self.listener_is_lost();
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
                if late > stalled {
                    self.report(wait, IN_TIME, &format!("{late:?} late, stalls explain {stalled:?}"));
                }
            }
        }
        self.asking.iter().chain(&self.blocking).for_each(|wire| wire.sender.check_late());
        if let Some((_, token)) = self.suspect.take_if(|(at, _)| now > *at + CLOSING) {
            self.run.fails(EXPECTED, format!("the reply to {token} is NOSUBSCRIBER, and there was a listener"));
        }
        let is_over = |wait: &&Wait<'_>| wait.phase == Phase::Over && !wait.trackers.iter().any(Tracker::expects);
        let tokens: Vec<Token> = self.waits.values().filter(is_over).map(|wait| wait.claim.token).collect();
        self.past.extend(tokens.iter().filter_map(|token| self.waits.remove_entry(token)));
    }

    fn take_in(&mut self, Received { wire, at, request, reply }: Received) {
        if reply == Reply::Closed {
            return self.closed(wire);
        }
        let is_push = matches!(reply, Reply::Push(_));
        let is_listener = match (&self.listening, &self.asking) {
            (Some(listening), _) => listening.number == wire,
            (None, Some(asking)) => is_push && asking.number == wire,
            (None, None) => false,
        };
        if is_listener {
            let (Reply::Push(parts) | Reply::List(parts)) = reply else { return };
            return self.hear(&parts, at);
        }
        if is_push {
            return; // Of a connection that was left.
        }
        let is_asker = self.asking.as_ref().is_some_and(|asking| asking.number == wire);
        let blocking = self.blocking.iter().position(|other| other.number == wire);
        if let Some(request) = request.filter(|_| is_asker || blocking.is_some()) {
            self.answered(&request, &reply, at);
        }
        // A client that was unblocked can get one reply too many, so nothing else is sent on this connection.
        blocking.map(|place| self.blocking.swap_remove(place));
    }

    /// Takes in the reply to a request.
    fn answered(&mut self, request: &Request, reply: &Reply, at: Instant) {
        let Some(token) = request.operation.as_ref().map(|operation| operation.token) else { return };
        let Some(wait) = self.waits.get_mut(&token).or_else(|| self.past.get_mut(&token)) else { return };
        if request.line.starts_with("LOCK.RELEASE") {
            return wait.phase = Phase::Over;
        }
        let channel = self.channels.iter().position(|channel| request.line.ends_with(&format!(" NOTIFY {channel}")));
        let waits = *reply == Reply::waiting();
        let finding = channel.and_then(|channel| wait.trackers[channel].answered(waits, self.on_one_connection));
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
        if let Some((rule, what)) = finding {
            self.run.report(self.database, &wait.claim.key.name, rule, &format!("{token}: {what}"));
        }
    }

    fn closed(&mut self, wire: u64) {
        self.blocking.retain(|other| other.number != wire);
        if self.listening.take_if(|listening| listening.number == wire).is_some() {
            self.listener_is_lost();
        }
        if self.asking.take_if(|asking| asking.number == wire).is_some() {
            self.asker_is_lost();
        }
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
        let &[word, end, database, token, key] = &words[..] else { return None };
        let (token, (event, counter)) = (Token::read(token.as_bytes())?, Event::read(word)?);
        let wait = self.waits.get_mut(&token).or_else(|| self.past.get_mut(&token))?;
        let is_named = key == wait.claim.key.name && database == wait.claim.key.database.to_string();
        is_named.then_some(())?;
        self.run.counters.count(counter);
        self.run.message(self.run.port_of(self.database), wait.claim.key, at, [word, end, words[3]]);
        let may_be_lost = self.run.evidence.changes.any_since(wait.begun);
        let finding = wait.trackers[channel].heard(event, at, may_be_lost);
        if event == Event::Granted {
            self.run.counters.count("grants");
            wait.is_granted(at, &mut self.random);
        } else {
            wait.settle(at, false);
        }
        if let Some((rule, what)) = finding {
            self.run.report(self.database, key, rule, &format!("{token}: {what}"));
        }
        Some(())
    }

    fn report(&self, wait: &Wait<'_>, rule: Rule, what: &str) {
        self.run.report(self.database, &wait.claim.key.name, rule, &format!("{}: {what}", wait.claim.token));
    }
}
