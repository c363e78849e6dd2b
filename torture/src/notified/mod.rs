//! A client that waits without blocking its connection: it has many waits at once on one connection, hears of their ends by
//! messages, on that connection or on another, and now and then loses either.

mod line;
mod news;
mod post;
mod wait;
mod wire;

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::member::EXPECTED;
use crate::network;
use crate::token::Token;
use crate::world::World;
use line::{Line, What};
use post::Post;
use wait::{Phase, Step, Wait};
use wire::{Heard, Wire};

const MOST_WAITS: usize = 30;
/// Between two waits that are begun.
const LONGEST_PAUSE_US: u64 = 8000;
const TICK: Duration = Duration::from_millis(2);
/// How long the news may take that nobody listened.
const CLOSING: Duration = Duration::from_secs(2);

pub struct Notified<'w> {
    world: &'w World,
    random: fastrand::Rng,
    database: u32,
    channels: [String; 2],
    news: (Sender<Heard>, Receiver<Heard>),
    wires: u64,
    asking: Option<Line>,
    /// The connection that asks is the one that listens, with RESP3.
    alone: bool,
    listening: Option<Wire>,
    blocking: Vec<Line>,
    /// Since when it listens on both channels; it has been told so of `confirmed` of them.
    listens: Option<Instant>,
    confirmed: usize,
    waits: HashMap<Token, Wait<'w>>,
    /// When it may begin another.
    next_wait: Instant,
    past: HashMap<Token, Wait<'w>>,
    /// Somebody was told that nobody listens.
    suspect: Option<(Instant, Token)>,
}

impl<'w> Notified<'w> {
    pub fn new(world: &'w World, database: u32, random: fastrand::Rng) -> Self {
        Self {
            world,
            random,
            database,
            channels: ["first", "second"].map(|name| format!("{name}{database}")),
            news: mpsc::channel(),
            wires: 0,
            asking: None,
            alone: false,
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
        while self.world.goes_on() {
            self.follow();
            self.connect();
            self.ask_for_more();
            self.take_steps();
            self.disturb();
            if let Ok(heard) = self.news.1.recv_timeout(TICK) {
                self.take_in(heard);
            }
            let now = Instant::now();
            while let Ok(heard) = self.news.1.try_recv() {
                self.take_in(heard);
            }
            self.check_times(now);
        }
    }

    /// Leaves a server that is not the one that clients talk to any more.
    fn follow(&mut self) {
        let port = self.world.server.port_of(self.database);
        if self.listening.take_if(|wire| wire.port != port).is_some() {
            self.is_deaf();
        }
        if self.asking.take_if(|line| line.wire.port != port).is_some() {
            self.asker_is_gone();
        }
    }

    /// Opens what is not open, and listens.
    fn connect(&mut self) {
        if self.asking.is_none() {
            self.alone = self.random.bool();
            let resp3 = self.alone || self.random.bool();
            let Some(wire) = self.open(resp3) else { return };
            self.asking = Some(Line::of(wire));
            if self.alone {
                self.world.figures.met("connections that ask and listen");
                self.listening = None;
                self.is_deaf();
                self.listen();
            }
        }
        if !self.alone && self.listening.is_none() {
            let resp3 = self.random.bool();
            self.listening = self.open(resp3);
            self.listen();
        }
    }

    fn open(&mut self, resp3: bool) -> Option<Wire> {
        let is_bad = self.random.u8(..4) == 0;
        let connect = if is_bad { network::connect } else { World::connect };
        let link = connect(self.world, self.database, resp3)?;
        network::reset_soon(self.world, &link, &mut self.random);
        self.wires += 1;
        Wire::of(link, self.wires, self.news.0.clone())
    }

    fn listen(&mut self) {
        let line = format!("SSUBSCRIBE {} {}", self.channels[0], self.channels[1]);
        let asking = self.asking.as_mut().map(|line| &mut line.wire);
        if let Some(wire) = self.listening.as_mut().or(asking) {
            wire.send(&[line]);
        }
    }

    /// Nobody listens any more: what waits may never be told.
    fn is_deaf(&mut self) {
        (self.listens, self.confirmed, self.suspect) = (None, 0, None);
        self.posts().for_each(Post::unheard);
    }

    fn posts(&mut self) -> impl Iterator<Item = &mut Post> {
        self.waits.values_mut().flat_map(|wait| &mut wait.posts)
    }

    /// Begins waits until there are as many as it wants.
    fn ask_for_more(&mut self) {
        let now = Instant::now();
        let wanted = self.random.usize(1..MOST_WAITS);
        while self.listens.is_some() && self.asking.is_some() && self.waits.len() < wanted && self.next_wait <= now {
            self.next_wait += Duration::from_micros(self.random.u64(..LONGEST_PAUSE_US));
            let key = self.world.keys.in_database(self.database, &mut self.random);
            let wait = Wait::new(self.world, key, &mut self.random);
            let token = wait.claim.token;
            self.waits.insert(token, wait);
            self.ask(token, 0);
        }
    }

    /// Sends the request for a wait, sometimes in a transaction.
    fn ask(&mut self, token: Token, channel: usize) {
        let (Some(wait), Some(asking)) = (self.waits.get_mut(&token), &mut self.asking) else { return };
        let block = Wait::block_ms(&mut self.random);
        let line = format!("{} NOTIFY {}", wait.claim.request(Some(block)), self.channels[channel]);
        let framed = self.random.u8(..8) == 0;
        let sent = asking.put(self.world, wait, line, What::Ask(channel), framed);
        wait.posts[channel].asked(sent, Duration::from_millis(block));
    }

    fn release(&mut self, token: Token) {
        let (Some(wait), Some(asking)) = (self.waits.get_mut(&token), &mut self.asking) else { return };
        wait.posts.iter_mut().for_each(|post| post.released = true);
        let framed = self.random.u8(..8) == 0;
        let line = wait.claim.release_line();
        asking.put(self.world, wait, line, What::Release, framed);
    }

    /// Sends a copy of the request on a connection of its own, which it blocks.
    fn ask_and_block(&mut self, token: Token) {
        let Some(wire) = self.open(true) else { return };
        let Some(wait) = self.waits.get_mut(&token) else { return };
        let block = Wait::block_ms(&mut self.random);
        let line = wait.claim.request(Some(block));
        let mut own = Line::of(wire);
        own.put(self.world, wait, line, What::Block(Duration::from_millis(block)), false);
        self.blocking.push(own);
        self.world.figures.met("copies that block");
    }

    /// Does with each wait what was planned.
    fn take_steps(&mut self) {
        if self.asking.is_none() || self.listens.is_none() {
            return;
        }
        let now = Instant::now();
        let due = |wait: &Wait<'_>| wait.next.filter(|(at, _)| *at <= now).map(|(_, step)| (wait.claim.token, step));
        let steps: Vec<(Token, Step)> = self.waits.values().filter_map(due).collect();
        for (token, step) in steps {
            if let Some(wait) = self.waits.get_mut(&token) {
                wait.next = None;
            }
            match step {
                Step::Ask(channel) => self.ask(token, channel),
                Step::Block => self.ask_and_block(token),
                Step::Release => self.release(token),
                Step::Forget => self.let_lease_end(token),
            }
        }
    }

    fn let_lease_end(&mut self, token: Token) {
        let Some(wait) = self.waits.get_mut(&token) else { return };
        let until = wait.claim.safe_until(self.world).map(|end| end.min(Instant::now()));
        if let Some((rule, what)) = wait.claim.held_until(self.world, until) {
            self.world.charge(wait.claim.key, rule, &what);
        }
        wait.phase = Phase::Over;
    }

    /// Loses a connection now and then, or does not listen for a moment.
    fn disturb(&mut self) {
        let what = match self.random.u16(..800) {
            0 if self.asking.take().is_some() => {
                self.asker_is_gone();
                "asking connections closed"
            }
            1 if self.listening.take().is_some() => {
                self.is_deaf();
                "listening connections closed"
            }
            2 if self.listens.is_some() => {
                self.stop_and_listen();
                "moments without a listener"
            }
            _ => return,
        };
        self.world.figures.met(what);
    }

    fn stop_and_listen(&mut self) {
        let lines = ["SUNSUBSCRIBE", "SSUBSCRIBE"].map(|word| format!("{word} {}", self.channels.join(" ")));
        let asking = self.asking.as_mut().map(|line| &mut line.wire);
        if let Some(wire) = self.listening.as_mut().or(asking) {
            wire.send(&lines);
        }
        self.is_deaf();
    }

    /// Everything is answered, and every wait ends, in time; what is over goes.
    fn check_times(&mut self, now: Instant) {
        for wait in self.waits.values() {
            for (since, late) in wait.posts.iter().filter_map(|post| post.overdue(now)) {
                if let Some((rule, what)) = Post::missing(late, self.world.weather.between(since, now)) {
                    self.world.accuse(wait.claim.key, rule, &format!("{}: {what}", wait.claim.token));
                }
            }
        }
        for line in self.asking.iter().chain(&self.blocking) {
            line.check_time(self.world, now);
        }
        if let Some((_, token)) = self.suspect.take_if(|(at, _)| now > *at + CLOSING) {
            let text = format!("{token} was told NOSUBSCRIBER, and there was one all the time");
            self.world.court.charge(EXPECTED, text);
        }
        let over = |wait: &&Wait<'_>| wait.phase == Phase::Over && !wait.posts.iter().any(Post::expects);
        let tokens: Vec<Token> = self.waits.values().filter(over).map(|wait| wait.claim.token).collect();
        self.past.extend(tokens.iter().filter_map(|token| self.waits.remove_entry(token)));
    }
}
