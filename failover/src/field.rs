//! What the clients of a round share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::scene::Ports;

const MUTEXES: usize = 6;
/// Most requests for these are for shares.
const SHARED: usize = 2;
const POLL: Duration = Duration::from_millis(5);

pub struct Field<'a> {
    pub ports: &'a Ports,
    pub ledger: Ledger,
    tag: &'a str,
    over: AtomicBool,
    tokens: AtomicU64,
    put_off: AtomicU64,
    /// The master, as Sentinel or the cluster tells clients that listen.
    master: AtomicUsize,
}

impl<'a> Field<'a> {
    pub fn new(ports: &'a Ports, tag: &'a str, master: usize) -> Self {
        let (over, tokens, put_off) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let master = AtomicUsize::new(master);
        Self { ports, ledger: Ledger::default(), tag, over, tokens, put_off, master }
    }

    /// A lock, and whether it is for shares.
    pub fn choose(&self, random: &mut fastrand::Rng) -> (usize, bool) {
        let lock = random.usize(..MUTEXES + SHARED);
        (lock, lock >= MUTEXES)
    }

    pub fn key(&self, lock: usize) -> String {
        format!("lock-{lock}{}", self.tag)
    }

    pub fn token(&self) -> String {
        format!("t{}", self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that a lease was not lengthened, with TRYAGAIN.
    pub fn note_put_off(&self) {
        self.put_off.fetch_add(1, Ordering::Relaxed);
    }

    pub fn put_off(&self) -> u64 {
        self.put_off.load(Ordering::Relaxed)
    }

    pub fn master(&self) -> usize {
        self.master.load(Ordering::Relaxed)
    }

    pub fn announce(&self, master: usize) {
        self.master.store(master, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sleeps until then, or until the round is over.
    pub fn rest_until(&self, then: Instant) {
        while !self.is_over() && Instant::now() < then {
            sleep(POLL.min(then.saturating_duration_since(Instant::now())));
        }
    }
}
