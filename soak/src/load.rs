//! Clients that take and give up locks as fast as they can, in all ways, and come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use support::{Client, Protocol, bytes_of};

/// How many keys there are locks of: so few that some are always waited for.
const KEYS: usize = 12;

/// Clients that run until they are to end.
pub struct Load {
    state: Arc<State>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    requests: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    pub fn start(server: &support::Server, clients: usize, seed: u64) -> Self {
        let (state, port) = (Arc::new(State::default()), server.port());
        let start = |number: u64| {
            let state = Arc::clone(&state);
            let random = fastrand::Rng::with_seed(seed.wrapping_mul(1000) + number);
            thread::spawn(move || Member { port, number, random, state, client: connect(port) }.run())
        };
        let clients = (0..clients as u64).map(start).collect();
        Self { state, clients }
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Ends all clients, and returns how many requests there were.
    pub fn end(self) -> u64 {
        self.state.is_over.store(true, Ordering::Relaxed);
        let ended = self.clients.into_iter().map(JoinHandle::join).all(|end| end.is_ok());
        assert!(ended, "a client was not answered");
        self.state.requests.load(Ordering::Relaxed)
    }
}

fn connect(port: u16) -> Client {
    Client::connect(port, Protocol::Resp2).expect("a server that takes connections")
}

/// One client.
struct Member {
    port: u16,
    number: u64,
    random: fastrand::Rng,
    state: Arc<State>,
    client: Client,
}

impl Member {
    fn run(mut self) {
        while !self.state.is_over.load(Ordering::Relaxed) {
            let (key, token) = (format!("door{}", self.random.usize(..KEYS)), format!("{:x}", self.random.u64(..)));
            match self.random.u8(..20) {
                0..=5 => self.hold(&format!("LOCK.ACQUIRE {key} {token} PX 2000 BLOCK 50"), &key, &token),
                6..=7 => self.reenter(&key, &token),
                8..=10 => {
                    self.hold(&format!("LOCK.SHARE {key} {token} PX 2000 LIMIT 3 BLOCK 50 MAXWAITERS 20"), &key, &token)
                }
                11..=12 => self.hold(&format!("LOCK.ACQUIRE {key} {token} PX 1000 BLOCK 50 SESSION"), &key, &token),
                13 => self.close_with(&format!("LOCK.SHARE {key} {token} PX 1000 SESSION")),
                14 => self.wait_and_close(&format!("LOCK.ACQUIRE {key} {token} PX 1000 BLOCK 0 SESSION GRACE 50")),
                15..=17 => self.wait_for_message(&key, &token),
                18 => self.says(&format!("LOCK.ACQUIRE {key} {token} PX 5 BLOCK 20")),
                _ => self.look_or_delete(&key),
            }
        }
    }

    fn says(&mut self, line: &str) {
        let reply = self.client.run(line);
        assert!(!matches!(reply, support::Reply::Closed | support::Reply::Other(_)), "{line}: {reply:?}");
        self.state.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn hold(&mut self, line: &str, key: &str, token: &str) {
        self.says(line);
        if self.random.bool() {
            self.says(&format!("LOCK.FENCE {key} {token} counter"));
        }
        self.says(&format!("LOCK.RELEASE {key} {token}"));
    }

    fn reenter(&mut self, key: &str, token: &str) {
        for _ in 0..2 {
            self.says(&format!("LOCK.REENTER {key} {token} PX 2000 BLOCK 50"));
        }
        self.says(&format!("LOCK.EXTEND {key} {token} PX 2000"));
        for _ in 0..2 {
            self.says(&format!("LOCK.RELEASE {key} {token}"));
        }
    }

    /// Closes the connection to which a lock belongs.
    fn close_with(&mut self, line: &str) {
        self.says(line);
        self.client = connect(self.port);
    }

    /// Closes a connection that waits.
    fn wait_and_close(&mut self, line: &str) {
        self.client.send(&bytes_of(line));
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        self.client = connect(self.port);
    }

    /// Asks for messages on a channel, whose listener comes and goes, and gives up what it waits for or has got.
    fn wait_for_message(&mut self, key: &str, token: &str) {
        let channel = format!("news{}", self.number);
        let mut listener = connect(self.port);
        listener.send(&["SSUBSCRIBE", &channel]);
        listener.receive();
        let request = format!("PX 10 BLOCK 100 NOTIFY {channel}");
        self.says(&format!("LOCK.ACQUIRE {key} {token} {request}"));
        self.says(&format!("LOCK.SHARE {key} {token}2 {request} SESSION"));
        if self.random.bool() {
            self.says(&format!("LOCK.RELEASE {key} {token}"));
            self.says(&format!("LOCK.RELEASE {key} {token}2"));
        }
    }

    fn look_or_delete(&mut self, key: &str) {
        match self.random.u8(..5) {
            0 => self.says(&format!("DEL {key}")),
            1 => self.says(&format!("LOCK.WAITERS {key}")),
            2 => self.says("LOCK.QUEUES"),
            3 => self.says("LOCK.SLOWLOG GET"),
            _ => self.says(&format!("LOCK.INFO {key}")),
        }
    }
}
