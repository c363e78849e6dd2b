//! Clients that take turns with one lock, whatever becomes of the servers: they ask Sentinel where the master is, ask again
//! with the same token when they had no answer, and notice when two of them are let in.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, sleep};
use std::time::Duration;

use support::sentinel::Sentinel;
use support::{Client, Protocol, Reply, eventually};

/// How long one waits at a time, and how long before the next attempt to find the master.
const SLICE_MS: u32 = 500;
const BREATH: Duration = Duration::from_millis(20);
const WORKERS: usize = 4;

/// What all of them have seen.
#[derive(Default)]
pub struct Ledger {
    inside: AtomicUsize,
    turns: AtomicUsize,
    troubles: Mutex<BTreeSet<String>>,
    over: AtomicBool,
}

impl Ledger {
    fn enter(&self) {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "two hold the lock");
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until each had another turn, more or less.
    #[track_caller]
    pub fn goes_on(&self) {
        let before = self.turns.load(Ordering::SeqCst);
        eventually("the lock goes round", || self.turns.load(Ordering::SeqCst) > before + WORKERS);
    }

    /// What came in place of an answer, since the last time: the first words of errors, or what happened to a connection.
    pub fn troubles(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.troubles.lock().expect("nobody fails while they write"))
    }

    fn note(&self, trouble: &str) {
        self.troubles.lock().expect("nobody fails while they write").insert(trouble.to_owned());
    }
}

/// Ends the work when it is dropped, also if the test fails.
pub struct Work<'e>(&'e Ledger);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

/// Has clients work.
pub fn begin<'s, 'e>(scope: &'s Scope<'s, 'e>, ledger: &'e Ledger, sentinels: &'e [Sentinel]) -> Work<'e> {
    for number in 0..WORKERS {
        let worker = Worker { ledger, sentinel: &sentinels[number % sentinels.len()], client: None };
        scope.spawn(move || worker.work(number));
    }
    Work(ledger)
}

struct Worker<'e> {
    ledger: &'e Ledger,
    sentinel: &'e Sentinel,
    client: Option<Client>,
}

impl Worker<'_> {
    fn work(mut self, number: usize) {
        for turn in 0.. {
            if self.ledger.is_over() {
                return;
            }
            self.take_a_turn(&format!("{number}-{turn}"));
        }
    }

    /// Has the lock once, under a token of its own. Gives up when all is over, but never while it may hold the lock.
    fn take_a_turn(&mut self, token: &str) {
        let acquire = format!("LOCK.ACQUIRE door {token} PX 600000 BLOCK {SLICE_MS}");
        loop {
            match self.ask(&acquire).1 {
                Reply::Int(1) => break,
                Reply::Nil if self.ledger.is_over() => return,
                Reply::Nil => {}
                other => panic!("{acquire}: {other:?}"),
            }
        }
        self.ledger.enter();
        sleep(Duration::from_millis(2));
        self.ledger.leave();
        let (sent, reply) = self.ask(&format!("LOCK.RELEASE door {token}"));
        // The answer to the first one may be what was lost.
        let was_released = sent > 1 && reply.is_error() && ["NOTHELD", "NOTOWNER"].contains(&reply.code());
        assert!(reply == 0 || was_released, "{token}: {reply:?} to RELEASE number {sent}");
    }

    /// The answer of a master, and how often it was asked for.
    fn ask(&mut self, line: &str) -> (u32, Reply) {
        for sent in 1.. {
            let reply = self.client().run(line);
            let trouble = match &reply {
                Reply::Closed => "connection closed",
                Reply::Other(_) => "no answer",
                Reply::Error(_) if !reply.code().starts_with("NOT") => reply.code(),
                _ => return (sent, reply),
            };
            self.ledger.note(trouble);
            self.client = None;
            sleep(BREATH);
        }
        unreachable!("it asks for ever")
    }

    fn client(&mut self) -> &mut Client {
        loop {
            let port = self.sentinel.master_port();
            if let Some(client) = self.client.take().or_else(|| Client::connect(port?, Protocol::Resp2)) {
                return self.client.insert(client);
            }
            self.ledger.note("connection refused");
            sleep(BREATH);
        }
    }
}
