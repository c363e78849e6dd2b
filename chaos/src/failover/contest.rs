//! The contest of the clients of one round for its locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use support::happens_within;

use super::nodes::NODES;
use crate::evidence::Evidence;
use crate::history::{History, HistoryFile};
use crate::keys::Key;
use crate::link::Link;
use crate::token::Tokens;

const MUTEXES: usize = 6;
/// Most requests for these locks are for shares.
const SHARED: usize = 2;
pub const LIMIT: usize = 2;
/// This number of grants before the fault, and of the new master, shows that there is contention.
const GRANTS: usize = 6;
/// How long they may take, which includes a recovery period.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any round, also one whose thread has panicked.
const MAX_LENGTH: Duration = Duration::from_secs(240);
const POLL: Duration = Duration::from_millis(25);
/// Longer stalls make a round void: they add to the time in which a master notices that its replicas are gone.
const STALL: Duration = Duration::from_millis(400);

/// Why a round ends early.
pub enum Stop {
    Lost(String),
    Stuck(String),
}

pub struct Contest {
    pub ports: Vec<u16>,
    keys: Vec<Key>,
    pub tokens: Tokens,
    pub history: Arc<History>,
    pub grants: [AtomicUsize; NODES],
    /// The master that Sentinel or the cluster announces to clients.
    pub master: AtomicUsize,
    begun: Instant,
    pub is_over: AtomicBool,
}

impl Contest {
    pub fn new(ports: Vec<u16>, tag: &str, master: usize, (round, file): (u32, HistoryFile)) -> Self {
        let key = |number| {
            let name = format!("lock-{number}{tag}");
            Key { number, database: 0, name, is_strict: true, limit: Some(LIMIT) }
        };
        let (keys, begun): (Vec<Key>, _) = ((0..MUTEXES + SHARED).map(key).collect(), Instant::now());
        Self {
            ports,
            tokens: Tokens::default(),
            history: History::new(begun, round, &keys, Evidence::default(), file),
            keys,
            grants: Default::default(),
            master: AtomicUsize::new(master),
            begun,
            is_over: AtomicBool::new(false),
        }
    }

    pub fn choose(&self, random: &mut Rng) -> (&Key, bool) {
        let key = &self.keys[random.usize(..self.keys.len())];
        (key, key.number >= MUTEXES)
    }

    pub fn granted(&self, node: usize) -> usize {
        self.grants[node].load(Ordering::Relaxed)
    }

    pub fn wait_for_grants(&self, node: usize) -> Result<(), Stop> {
        let before = self.granted(node);
        let stuck = || Stop::Stuck(format!("node {node} grants nothing, though it is the master"));
        happens_within(PATIENCE, || self.granted(node) >= before + GRANTS).then_some(()).ok_or_else(stuck)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.begun.elapsed() > MAX_LENGTH
    }

    pub fn rest(&self, span: Duration) {
        let then = Instant::now() + span;
        while !self.is_over() && Instant::now() < then {
            sleep(POLL.min(then.saturating_duration_since(Instant::now())));
        }
    }

    /// Sends a PING to the nodes again and again until the round is over. Returns the first stall that no fault
    /// explains: the node that is `struck` is left out.
    pub fn watch_stalls(&self, struck: Option<usize>) -> Option<String> {
        let mut links: [Option<Link>; NODES] = [const { None }; NODES];
        let mut first = None;
        while !self.is_over() {
            for node in (0..NODES).filter(|node| Some(*node) != struck) {
                let begun = Instant::now();
                sleep(POLL);
                let open = links[node].take().or_else(|| Link::bare(&self.history, self.ports[node], 10 * STALL));
                links[node] = open.and_then(|mut link| (link.run("PING") == "PONG").then_some(link));
                let took = begun.elapsed();
                first = first.or((took > STALL).then(|| format!("a PING of node {node} took {took:?}")));
            }
        }
        first
    }
}
