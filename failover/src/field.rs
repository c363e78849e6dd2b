//! What the clients of a round share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::ledger::Ledger;
use crate::scene::Ports;

const MUTEXES: usize = 6;
/// Most requests for these are for shares.
const SHARED: usize = 2;
pub struct Field<'a> {
    pub ports: &'a Ports,
    pub ledger: Ledger,
    tag: &'a str,
    over: Mutex<bool>,
    ended: Condvar,
    tokens: AtomicU64,
    put_off: AtomicU64,
    /// The master, as Sentinel or the cluster tells clients that listen.
    master: AtomicUsize,
}

impl<'a> Field<'a> {
    pub fn new(ports: &'a Ports, tag: &'a str, master: usize) -> Self {
        let (tokens, put_off) = (AtomicU64::new(0), AtomicU64::new(0));
        let (over, ended) = (Mutex::new(false), Condvar::new());
        let master = AtomicUsize::new(master);
        Self { ports, ledger: Ledger::default(), tag, over, ended, tokens, put_off, master }
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
        *self.over() = true;
        self.ended.notify_all();
    }

    pub fn is_over(&self) -> bool {
        *self.over()
    }

    fn over(&self) -> MutexGuard<'_, bool> {
        self.over.lock().expect("nothing panics here")
    }

    /// Sleeps until then, or until the round is over.
    pub fn rest_until(&self, then: Instant) {
        let left = then.saturating_duration_since(Instant::now());
        drop(self.ended.wait_timeout_while(self.over(), left, |over| !*over));
    }
}
