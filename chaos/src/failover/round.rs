//! One round: clients contend, the master is struck by a fault and replaced, the fault ends, and all is as before.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use support::connection::{Connection, packed};

use super::REPLICAS;
use super::client::Client;
use super::fault::Fault;
use super::nodes::{NODES, Nodes, Ports};
use crate::history::{History, HistoryFile, Hold, locked};
use crate::keys::{Class, Key};
use crate::token::Tokens;

const CLIENTS: usize = 20;
const MUTEXES: usize = 6;
/// Most requests for these locks are for shares.
const SHARED: usize = 2;
/// The most shares of a lock.
pub const LIMIT: usize = 2;
/// This number of grants before the fault, and of the new master, shows that there is contention.
const GRANTS: usize = 6;
/// How long they may take, which includes a recovery period.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(25);
/// When the fault comes, once there is contention, in milliseconds.
const CALM_MS: std::ops::Range<u64> = 0..1000;
/// Longer stalls make a round void: they add to the time in which a master notices that its replicas are gone.
const STALL: Duration = Duration::from_millis(400);

/// The result of a round.
#[derive(Default)]
pub struct Outcome {
    pub grants: usize,
    /// Grants of the old master after the fault.
    pub grants_of_old: usize,
    pub grants_of_new: usize,
    pub put_off: u64,
    pub until_promotion: Duration,
    /// The longest time without a grant.
    pub gap: Duration,
    /// Holds that overlap, with the history of their lock.
    pub overlaps: Vec<String>,
    /// Why the round does not count, if it does not.
    pub disturbance: Option<String>,
    /// Whether the servers did not agree, which does not concern locks. They cannot be used any more.
    pub is_lost: bool,
}

/// Why a round did not come to its end.
enum Stop {
    /// The servers do not agree which is master.
    Lost(String),
    /// The master grants nothing.
    Stuck(String),
}

/// What happened when.
struct Course {
    old: usize,
    new: usize,
    struck: Instant,
    promoted: Instant,
    /// The master in the end.
    last: usize,
}

/// What the clients of a round share.
pub struct Contest<'r> {
    pub ports: &'r Ports,
    pub keys: Vec<Key>,
    pub tokens: Tokens,
    pub history: Arc<History>,
    /// The node and the time of each grant.
    grants: Mutex<Vec<(usize, Instant)>>,
    overlaps: Mutex<Vec<String>>,
    /// How many leases were not set, with TRYAGAIN.
    pub put_off: AtomicU64,
    /// The master that Sentinel or the cluster announces to clients.
    pub master: AtomicUsize,
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl<'r> Contest<'r> {
    fn new(ports: &'r Ports, tag: &str, master: usize, (round, file): (u32, Option<HistoryFile>)) -> Self {
        let key = |number| Key {
            number,
            database: 0,
            name: format!("lock-{number}{tag}"),
            class: Class::Strict,
            limit: Some(LIMIT),
        };
        let keys: Vec<Key> = (0..MUTEXES + SHARED).map(key).collect();
        Self {
            ports,
            tokens: Tokens::default(),
            history: History::new(Instant::now(), round, keys.iter(), file),
            keys,
            grants: Mutex::default(),
            overlaps: Mutex::default(),
            put_off: AtomicU64::new(0),
            master: AtomicUsize::new(master),
            is_over: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Chooses a lock, and whether most requests for it are for shares.
    pub fn choose(&self, random: &mut fastrand::Rng) -> (&Key, bool) {
        let key = &self.keys[random.usize(..self.keys.len())];
        (key, key.number >= MUTEXES)
    }

    pub fn granted(&self, node: usize) {
        locked(&self.grants).push((node, Instant::now()));
    }

    /// A client believed that it held a lock.
    pub fn believed(&self, key: &Key, hold: Hold) {
        if let Some((rule, what)) = self.history.confirm(key, hold) {
            let text = format!("{}: {rule}\n{what}\n{}", key.name, self.history.report(0, &key.name));
            locked(&self.overlaps).push(text);
        }
    }

    /// How many grants of a node came at `since` or later.
    fn count(&self, node: usize, since: Instant) -> usize {
        locked(&self.grants).iter().filter(|(granter, at)| *granter == node && *at >= since).count()
    }

    fn wait_for_grants(&self, node: usize, since: Instant) -> Result<(), Stop> {
        let deadline = Instant::now() + PATIENCE;
        while self.count(node, since) < GRANTS {
            if Instant::now() > deadline {
                return Err(Stop::Stuck(format!("node {node} grants nothing, though it is the master")));
            }
            sleep(POLL);
        }
        Ok(())
    }

    pub fn is_over(&self) -> bool {
        *locked(&self.is_over)
    }

    /// Sleeps until then, or until the round is over.
    pub fn rest_until(&self, then: Instant) {
        let left = then.saturating_duration_since(Instant::now());
        drop(self.ended.wait_timeout_while(locked(&self.is_over), left, |is_over| !*is_over));
    }

    /// Sends a PING to the nodes again and again until the round is over. Returns the first stall that no fault
    /// explains: the node that is `struck` is left out.
    fn watch_stalls(&self, struck: Option<usize>) -> Option<String> {
        let mut links: [Option<Connection>; NODES] = [const { None }; NODES];
        let mut first = None;
        while !self.is_over() {
            let begun = Instant::now();
            sleep(POLL);
            let slept = begun.elapsed();
            first = first.or((slept > STALL).then(|| format!("{POLL:?} took {slept:?}")));
            for node in (0..NODES).filter(|node| Some(*node) != struck) {
                let begun = Instant::now();
                let open = links[node].take().or_else(|| Connection::open(self.ports.of(node), 10 * STALL).ok());
                let is_answered =
                    |link: &mut Connection| link.send(&packed(&["PING"])).is_ok() && link.receive().is_ok();
                links[node] = open.and_then(|mut link| is_answered(&mut link).then_some(link));
                let took = begun.elapsed();
                first = first.or((took > STALL).then(|| format!("node {node} took {took:?}")));
            }
        }
        first
    }
}

/// Ends the round also if a thread panics, so that its clients end.
struct Ending<'c, 'r>(&'c Contest<'r>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        *locked(&self.0.is_over) = true;
        self.0.ended.notify_all();
    }
}

/// Plays a round.
///
/// # Errors
///
/// A master does not grant locks.
pub fn play(
    nodes: &mut Nodes,
    fault: Fault,
    history: (u32, Option<HistoryFile>),
    random: &mut fastrand::Rng,
) -> Result<Outcome, String> {
    let lost = |what| Outcome { disturbance: Some(what), is_lost: true, ..Outcome::default() };
    let old = match nodes.wait_until_whole() {
        Ok(old) => old,
        Err(what) => return Ok(lost(what)),
    };
    let ports = Ports::default();
    nodes.publish(&ports);
    let contest = Contest::new(&ports, &nodes.tag, old, history);
    contest.history.fault(&format!("round: {fault} of node {old}"));
    let (course, stall) = thread::scope(|scope| {
        let ending = Ending(&contest);
        for number in 0..CLIENTS {
            let client = Client::new(&contest, number, random.fork());
            scope.spawn(move || client.run());
        }
        let watcher = scope.spawn(|| contest.watch_stalls(fault.silences().then_some(old)));
        let course = run(nodes, fault, old, &contest, random);
        drop(ending);
        (course, watcher.join().expect("a watcher that has not panicked"))
    });
    let overlaps = std::mem::take(&mut *locked(&contest.overlaps));
    match (course, stall) {
        (Ok(course), stall) => Ok(course.outcome(&contest, overlaps, stall)),
        (Err(Stop::Lost(what)), _) => Ok(Outcome { overlaps, ..lost(what) }),
        (Err(Stop::Stuck(what)), Some(stall)) => Ok(lost(format!("{what}; {stall}"))),
        (Err(Stop::Stuck(what)), None) => Err(what),
    }
}

fn run(
    nodes: &mut Nodes,
    fault: Fault,
    old: usize,
    contest: &Contest<'_>,
    random: &mut fastrand::Rng,
) -> Result<Course, Stop> {
    contest.wait_for_grants(old, Instant::now())?;
    sleep(Duration::from_millis(random.u64(CALM_MS)));
    fault.prepare(nodes, old);
    fault.strike(nodes, old);
    let struck = Instant::now();
    contest.history.fault(&format!("node {old} is struck: {fault}"));
    if fault.is_noticed_early(random) {
        nodes.promote_a_replica_of(old);
    }
    let new = nodes.wait_for_promotion(old).map_err(Stop::Lost)?;
    let promoted = Instant::now();
    contest.history.fault(&format!("node {new} is a master, port {}", contest.ports.of(new)));
    contest.master.store(new, Ordering::Relaxed);
    // Nothing but the period may suspend grants now, also before all replicas are back.
    nodes.require_replicas(new, 0);
    fault.end(nodes, old, new, contest.ports, random);
    let last = nodes.wait_until_whole().map_err(Stop::Lost)?;
    nodes.require_replicas(last, REPLICAS);
    contest.wait_for_grants(last, promoted)?;
    Ok(Course { old, new, struck, promoted, last })
}

impl Course {
    fn outcome(self, contest: &Contest<'_>, overlaps: Vec<String>, stall: Option<String>) -> Outcome {
        let Self { old, new, struck, promoted, last } = self;
        let grants = locked(&contest.grants).clone();
        let gaps = grants.windows(2).map(|pair| pair[1].1.saturating_duration_since(pair[0].1));
        let replaced = (new != last).then(|| format!("node {new} was replaced by node {last}"));
        Outcome {
            grants: grants.len(),
            grants_of_old: contest.count(old, struck),
            grants_of_new: contest.count(new, promoted),
            put_off: contest.put_off.load(Ordering::Relaxed),
            until_promotion: promoted - struck,
            gap: gaps.max().unwrap_or_default(),
            overlaps,
            disturbance: stall.or(replaced),
            is_lost: false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants, {} by the old master after the fault, {} by the new one, promoted after {:.1} s, {} times TRYAGAIN, no grant \
             for {:.1} s, {} overlaps",
            self.grants,
            self.grants_of_old,
            self.grants_of_new,
            self.until_promotion.as_secs_f64(),
            self.put_off,
            self.gap.as_secs_f64(),
            self.overlaps.len()
        )
    }
}
