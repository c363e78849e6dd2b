//! One round: clients contend, the master is struck by a fault and replaced, the fault ends, and all is as before.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fastrand::Rng;
use support::happens_within;

use super::client::Client;
use super::nodes::{NODES, Nodes};
use super::{DELAY, REPLICAS};
use crate::evidence::Evidence;
use crate::history::{History, HistoryFile};
use crate::keys::Key;
use crate::link::Link;
use crate::token::Tokens;

const CLIENTS: usize = 20;
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
/// When the fault comes, once there is contention, in milliseconds.
const CALM_MS: Range<u64> = 0..1000;
/// How long the fault lasts after the promotion: clients of both masters go on during this time.
const AFTER_FREEZE_MS: Range<u64> = 0..300;
const AFTER_CUT_MS: Range<u64> = 0..3500;
/// Longer stalls make a round void: they add to the time in which a master notices that its replicas are gone.
const STALL: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// kill -9
    Kill,
    /// kill -9 with replication that is late by half a second, and a promotion right after it
    LateKill,
    /// SIGSTOP, and SIGCONT after the promotion
    Freeze,
    /// Nothing passes between the master and the others
    Cut,
    /// The master receives nothing
    Deaf,
    /// Nothing that the master sends arrives
    Mute,
}

impl Fault {
    fn strike(self, nodes: &mut Nodes, master: usize) {
        match self {
            Self::LateKill => {
                (0..NODES).filter(|node| *node != master).for_each(|node| nodes.network.slow(master, node, DELAY));
                // Replication is late from now on; all that was sent before arrives.
                sleep(2 * DELAY);
                nodes.kill(master);
            }
            Self::Kill => nodes.kill(master),
            Self::Freeze => nodes.freeze(master),
            Self::Cut | Self::Deaf | Self::Mute => {
                for other in nodes.other_hosts(master) {
                    let ways = [(Self::Mute, other, master), (Self::Deaf, master, other)];
                    let cut = ways.into_iter().filter(|(open, ..)| *open != self);
                    cut.for_each(|(_, from, to)| nodes.network.cut(from, to));
                }
            }
        }
    }

    fn end(self, nodes: &mut Nodes, old: usize, master: usize, random: &mut Rng) {
        let mut rest = |range| sleep(Duration::from_millis(random.u64(range)));
        match self {
            Self::Kill | Self::LateKill => {
                nodes.network.heal();
                nodes.restart(old, master);
            }
            Self::Freeze => {
                rest(AFTER_FREEZE_MS);
                nodes.thaw(old);
            }
            Self::Cut | Self::Deaf | Self::Mute => {
                rest(AFTER_CUT_MS);
                nodes.network.heal();
            }
        }
    }
}

#[derive(Default)]
pub struct Outcome {
    pub grants: usize,
    pub grants_of_old: usize,
    pub overlap: Option<String>,
    /// Why the round does not count, if it does not.
    pub disturbance: Option<String>,
    /// Whether the servers did not agree, which does not concern locks. They cannot be used any more.
    pub is_lost: bool,
}

/// The grants of the old master before the fault, and whether the new master was replaced too.
type Course = Result<(usize, Option<String>), Stop>;

enum Stop {
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
    is_over: AtomicBool,
}

impl Contest {
    fn new(ports: Vec<u16>, tag: &str, master: usize, (round, file): (u32, HistoryFile)) -> Self {
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

    fn granted(&self, node: usize) -> usize {
        self.grants[node].load(Ordering::Relaxed)
    }

    fn wait_for_grants(&self, node: usize) -> Result<(), Stop> {
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
    fn watch_stalls(&self, struck: Option<usize>) -> Option<String> {
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

pub fn play(nodes: &mut Nodes, fault: Fault, file: (u32, HistoryFile), random: &mut Rng) -> Result<Outcome, String> {
    let lost = |what| Outcome { disturbance: Some(what), is_lost: true, ..Outcome::default() };
    let old = match nodes.wait_until_whole() {
        Ok(old) => old,
        Err(what) => return Ok(lost(what)),
    };
    let contest = Contest::new(nodes.ports(), &nodes.tag, old, file);
    contest.history.fault(&format!("round: {fault:?} of node {old}"));
    let is_silent = matches!(fault, Fault::Kill | Fault::LateKill | Fault::Freeze);
    let (course, stall) = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = Client::new(&contest, number, random.fork());
            scope.spawn(move || client.run());
        }
        let watcher = scope.spawn(|| contest.watch_stalls(is_silent.then_some(old)));
        let course = run(nodes, fault, old, &contest, random);
        contest.is_over.store(true, Ordering::Relaxed);
        (course, watcher.join().expect("a watcher that has not panicked"))
    });
    let overlap = contest.history.failures.first().map(str::to_owned);
    match (course, stall) {
        (Ok((before, replaced)), stall) => {
            let (grants, disturbance) = ((0..NODES).map(|node| contest.granted(node)).sum(), stall.or(replaced));
            let grants_of_old = contest.granted(old) - before;
            Ok(Outcome { grants, grants_of_old, overlap, disturbance, is_lost: false })
        }
        (Err(Stop::Lost(what)), _) => Ok(Outcome { overlap, ..lost(what) }),
        (Err(Stop::Stuck(what)), stall) => stall.map(|stall| lost(format!("{what}; {stall}"))).ok_or(what),
    }
}

fn run(nodes: &mut Nodes, fault: Fault, old: usize, contest: &Contest, random: &mut Rng) -> Course {
    contest.wait_for_grants(old)?;
    sleep(Duration::from_millis(random.u64(CALM_MS)));
    fault.strike(nodes, old);
    let before = contest.granted(old);
    contest.history.fault(&format!("node {old} is struck: {fault:?}"));
    // An operator promotes a replica, before the others notice that the master is gone.
    if fault == Fault::LateKill || random.bool() {
        nodes.promote_a_replica_of(old);
    }
    let new = nodes.wait_for_promotion(old).map_err(Stop::Lost)?;
    contest.history.fault(&format!("node {new} is a master, port {}", contest.ports[new]));
    contest.master.store(new, Ordering::Relaxed);
    // Nothing but the period may suspend grants now, also before all replicas are back.
    nodes.require_replicas(new, 0);
    fault.end(nodes, old, new, random);
    let last = nodes.wait_until_whole().map_err(Stop::Lost)?;
    nodes.require_replicas(last, REPLICAS);
    contest.wait_for_grants(last)?;
    Ok((before, (new != last).then(|| format!("node {new} was replaced by node {last}"))))
}
