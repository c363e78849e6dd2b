//! Clients that all want one lock, and how often it goes from one to another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::place::Place;
use crate::protocols::{Client, Protocol};
use crate::statistics::jain;

const LOCK: &str = "door";

/// When a client that releases asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// After the reply to its release.
    AfterReply,
    /// In the same write.
    InOneWrite,
}

pub struct Crowd<'a> {
    place: &'a Place,
    board: Rc<Board>,
    /// They never end.
    tasks: Vec<JoinHandle<()>>,
}

/// What the clients do, as they see it.
struct Board {
    last: Cell<usize>,
    /// Grants to another client than the one before.
    hand_overs: Cell<u64>,
    /// The grants to each client.
    taken: RefCell<Vec<u64>>,
}

impl Board {
    fn grant(&self, client: usize) {
        if self.last.replace(client) != client {
            self.hand_overs.set(self.hand_overs.get() + 1);
        }
        self.taken.borrow_mut()[client] += 1;
    }

    fn reset(&self) {
        self.hand_overs.set(0);
        self.taken.borrow_mut().fill(0);
    }
}

impl<'a> Crowd<'a> {
    /// Connects the clients and runs them until there are as many grants as clients, for as long as `warm_up` at most.
    pub fn gather(place: &'a Place, protocol: Protocol, clients: usize, comes_back: Return, warm_up: Duration) -> Self {
        let (last, taken) = (Cell::new(clients), RefCell::new(vec![0; clients]));
        let board = Rc::new(Board { last, hand_overs: Cell::new(0), taken });
        let connect = |number| {
            let client = place.block_on(protocol.connect(place.server.port(), number));
            place.clients.spawn_local(contend(client, number, comes_back, Rc::clone(&board)))
        };
        let tasks = (0..clients).map(connect).collect();
        let crowd = Self { place, board, tasks };
        crowd.run(1, warm_up);
        crowd
    }

    /// Runs the clients until each has held the lock that often on average, or `span` is over. Returns the time it took.
    fn run(&self, turns: u64, span: Duration) -> Duration {
        const STEP: Duration = Duration::from_millis(10);
        let (start, enough) = (Instant::now(), turns.saturating_mul(self.tasks.len() as u64));
        self.board.reset();
        while start.elapsed() < span && self.board.taken.borrow().iter().sum::<u64>() < enough {
            let step = STEP.min(span.saturating_sub(start.elapsed()));
            self.place.run_until(async move { sleep(step).await });
        }
        assert!(self.tasks.iter().all(|task| !task.is_finished()), "a client failed");
        start.elapsed()
    }

    /// Hand-overs per second.
    pub fn rate(&self, span: Duration) -> f64 {
        let took = self.run(u64::MAX, span);
        self.board.hand_overs.get() as f64 / took.as_secs_f64()
    }

    /// Jain's index of that number of turns on average, or of as many as there are in `at_most`.
    pub fn fairness(&self, turns: u64, at_most: Duration) -> f64 {
        self.run(turns, at_most);
        jain(&self.board.taken.borrow())
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn contend(mut client: Client, number: usize, comes_back: Return, board: Rc<Board>) {
    client.acquire(LOCK).await;
    loop {
        board.grant(number);
        match &mut client {
            Client::Plain(plain) if comes_back == Return::InOneWrite => plain.release_and_acquire().await,
            client => {
                client.release(LOCK).await;
                client.acquire(LOCK).await;
            }
        }
    }
}
