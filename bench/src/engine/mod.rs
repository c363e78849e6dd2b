//! One thread that drives up to thousands of clients over non-blocking connections, so that a measurement costs the
//! machine as little as possible beside the server, and every protocol (PING, too) as much as the others.
//!
//! The engine watches over what locks are for: it ends the benchmark when two clients hold one lock, or more
//! than may share it. What its clients are
//! to do is a [`Workload`], for one the [`contention`] for a lock; the server they meet at is their [`ground`].

mod connection;
pub mod contention;
pub mod crowd;
pub mod ground;
mod holders;
mod member;
mod timers;
mod wire;
mod workload;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use redis::Cmd;

pub use connection::Reply;
pub use wire::{Line, Wire};
pub use workload::{Action, Event, Orders, Workload};

use crate::protocols::{Lease, Progress, Protocol};
use holders::Holders;
use member::{Member, Phase};
use timers::Timers;

const EVENTS_AT_ONCE: usize = 1024;
/// The event queue does not take any length.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const READ_BUFFER: usize = 64 * 1024;
const TIMER: Token = Token(usize::MAX);

/// Which lock each client is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// All are after the same.
    One,
    /// Each has its own.
    Each,
    /// All are after the same, which so many may hold at once.
    Shared(usize),
}

impl Locks {
    fn number(self, client: usize) -> usize {
        match self {
            Self::One | Self::Shared(_) => 0,
            Self::Each => client,
        }
    }

    /// How many may hold one lock at once.
    fn most_holders(self) -> usize {
        match self {
            Self::One | Self::Each => 1,
            Self::Shared(most) => most,
        }
    }

    pub fn name(self, client: usize) -> String {
        match self {
            Self::One | Self::Shared(_) => "door".to_owned(),
            Self::Each => format!("door-{client}"),
        }
    }
}

/// How often clients have had to wait for an answer while they were after a lock, and how many locks they got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub round_trips: u64,
    pub acquisitions: u64,
}

pub struct Engine {
    poll: Poll,
    members: Vec<Member>,
    timers: Timers,
    holders: Holders,
    tally: Tally,
    orders: Orders,
    /// Members that have something to send.
    touched: Vec<usize>,
    command: Cmd,
    buffer: Box<[u8]>,
    replies: VecDeque<Reply>,
}

impl Engine {
    /// Connects `clients` of a protocol to the server on `port`.
    pub fn new(port: u16, protocol: &dyn Protocol, clients: usize, locks: Locks, lease: Lease) -> Self {
        let poll = Poll::new().expect("an event queue");
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        let members = (0..clients).map(|client| {
            let party = protocol.party(client, &locks.name(client), lease);
            Member::connect(server, &poll, client, protocol.lines(), party)
        });
        Self {
            members: members.collect(),
            timers: Timers::new(clients, poll.registry(), TIMER),
            poll,
            holders: Holders::of(locks, clients),
            tally: Tally::default(),
            orders: Orders::default(),
            touched: Vec::new(),
            command: Cmd::new(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            replies: VecDeque::new(),
        }
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    pub fn clients(&self) -> usize {
        self.members.len()
    }

    /// Gives every client the same order.
    pub fn all(&mut self, action: Action) {
        for client in 0..self.members.len() {
            self.orders.give(client, action);
            self.follow_orders();
        }
    }

    /// Lets the clients go on until `span` is over or the workload is done; returns how long that was. Whatever is under
    /// way then waits for the next run.
    pub fn run(&mut self, workload: &mut dyn Workload, span: Duration) -> Duration {
        let mut events = Events::with_capacity(EVENTS_AT_ONCE);
        let start = Instant::now();
        self.timers.resume();
        while !workload.is_done() {
            let left = span.saturating_sub(start.elapsed());
            if left.is_zero() {
                break;
            }
            self.fire_timers(workload);
            self.timers.arm();
            self.wait(&mut events, left);
            for event in &events {
                match event.token() {
                    TIMER => {}
                    token => self.on_socket(token, event.is_readable(), workload),
                }
            }
        }
        self.timers.pause();
        start.elapsed()
    }

    fn wait(&mut self, events: &mut Events, at_most: Duration) {
        if let Err(error) = self.poll.poll(events, Some(at_most.min(LONGEST_WAIT))) {
            assert!(error.kind() == std::io::ErrorKind::Interrupted, "the event queue broke: {error}");
        }
    }

    fn fire_timers(&mut self, workload: &mut dyn Workload) {
        let mut due = Vec::new();
        self.timers.take_due(&mut due);
        for client in due {
            let member = &mut self.members[client];
            if member.phase == Phase::Acquiring {
                member.turn(&mut self.command, &mut self.timers, |party, wire| party.on_alarm(wire));
                self.touched.push(client);
            } else {
                workload.on(client, Event::Rested, &mut self.orders);
            }
            self.follow_orders();
        }
    }

    fn on_socket(&mut self, token: Token, readable: bool, workload: &mut dyn Workload) {
        let (client, line) = member::of_token(token);
        let member = &mut self.members[client];
        if !readable {
            member.flush();
            return;
        }
        member.receive(line, &mut self.buffer, &mut self.replies);
        self.touched.push(client);
        while let Some(reply) = self.replies.pop_front() {
            if let Reply::Error(text) = &reply {
                panic!("the server answered: {text}");
            }
            let progress = self.members[client]
                .turn(&mut self.command, &mut self.timers, |party, wire| party.on_reply(line, reply, wire));
            self.advance(client, progress, workload);
        }
        self.follow_orders();
    }

    /// Keeps the books and asks the workload what comes next.
    fn advance(&mut self, client: usize, progress: Progress, workload: &mut dyn Workload) {
        let member = &mut self.members[client];
        let event = match (progress, &mut member.phase) {
            (Progress::Pending, _) => return,
            (Progress::Granted, Phase::Cycling(_)) => return,
            (Progress::Released, Phase::Cycling(left)) => {
                *left -= 1;
                if *left > 0 {
                    return;
                }
                Event::Cycled
            }
            (Progress::Granted, phase) => {
                *phase = Phase::Other;
                self.holders.add(client);
                self.tally.acquisitions += 1;
                Event::Granted
            }
            (Progress::Released, _) => Event::Released,
        };
        workload.on(client, event, &mut self.orders);
    }

    /// Does what was ordered, and sends what there is to send.
    fn follow_orders(&mut self) {
        let mut orders = std::mem::take(&mut self.orders.0);
        for (client, action) in orders.drain(..) {
            self.follow(client, action);
        }
        self.orders.0 = orders;
        for client in self.touched.drain(..) {
            self.tally.round_trips += u64::from(self.members[client].flush());
        }
    }

    fn follow(&mut self, client: usize, action: Action) {
        let member = &mut self.members[client];
        self.touched.push(client);
        match action {
            Action::Acquire => {
                member.phase = Phase::Acquiring;
                member.turn(&mut self.command, &mut self.timers, |party, wire| party.acquire(wire));
            }
            Action::Release => {
                self.holders.remove(client);
                member.turn(&mut self.command, &mut self.timers, |party, wire| party.release(wire));
            }
            Action::Rest(span) => self.timers.set(client, span),
            Action::Cycles(count) => {
                member.phase = Phase::Cycling(count);
                member.turn(&mut self.command, &mut self.timers, |party, wire| {
                    for _ in 0..count {
                        party.acquire(wire);
                        party.release(wire);
                    }
                });
            }
        }
    }
}
