//! Clients that are all after one lock, and how often it changes hands.

use std::time::Duration;

use support::Server;

use super::contention::{Contention, Return};
use super::ground::{LEASE, gather};
use super::{Action, Engine, Locks};
use crate::protocols::Protocol;
use crate::statistics::jain;

pub struct Crowd {
    engine: Engine,
    contention: Contention,
}

impl Crowd {
    /// Lets everybody have a turn, for as long as `warm_up` at most. `locks` is one lock, which one may hold or more.
    pub fn gather(
        server: &Server,
        protocol: &dyn Protocol,
        clients: usize,
        locks: Locks,
        comes_back: Return,
        warm_up: Duration,
    ) -> Self {
        let mut engine = gather(server, protocol, clients, locks, LEASE);
        let mut contention = Contention::new(clients, Duration::ZERO, comes_back);
        engine.all(Action::Acquire);
        contention.count_to(number(clients));
        engine.run(&mut contention, warm_up);
        Self { engine, contention }
    }

    /// Hand-overs per second.
    pub fn rate(&mut self, span: Duration) -> f64 {
        self.contention.count();
        let took = self.engine.run(&mut self.contention, span);
        self.contention.hand_overs as f64 / took.as_secs_f64()
    }

    /// Jain's index of so many turns of everybody, or of as many as there are in `at_most`.
    pub fn fairness(&mut self, turns: u64, at_most: Duration) -> f64 {
        self.contention.count_to(turns * number(self.engine.clients()));
        self.engine.run(&mut self.contention, at_most);
        jain(&self.contention.taken)
    }
}

fn number(clients: usize) -> u64 {
    u64::try_from(clients).expect("a number of clients")
}
