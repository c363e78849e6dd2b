//! One round: clients contend, the master is struck by a fault and replaced, the fault ends, and all is as it was.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::fault::Fault;
use crate::field::Field;
use crate::ledger::{Grant, shown};
use crate::scene::{Ports, Scene};
use crate::settings::REPLICAS;
use crate::weather;

const CLIENTS: usize = 20;
/// So many grants before the fault, and as many by the new master, show that there is contention.
const GRANTS: usize = 6;
/// How long they may take, which includes a recovery period.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(25);
/// When the fault comes, once there is contention, in milliseconds.
const CALM_MS: std::ops::Range<u64> = 0..1000;

/// What a round showed.
pub struct Outcome {
    pub grants: usize,
    /// Grants of the old master after the fault.
    pub grants_of_old: usize,
    pub grants_of_new: usize,
    pub put_off: u64,
    pub until_promotion: Duration,
    /// The longest time without a grant.
    pub gap: Duration,
    /// Sets of beliefs that overlap, in words.
    pub overlaps: Vec<String>,
    /// Why the round does not count, if it does not.
    pub disturbance: Option<String>,
    /// Whether the servers came to no agreement, which is no matter of locks. Their scene is of no use any more.
    pub is_lost: bool,
}

/// Why a round did not come to its end.
enum Stop {
    /// The servers do not agree who is master.
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

/// Ends the round also when something panics, so that nobody waits for its clients for ever.
struct Ending<'f, 'a>(&'f Field<'a>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Plays a round; Err if a master does not grant locks.
pub fn play(scene: &mut Scene, fault: Fault, random: &mut fastrand::Rng) -> Result<Outcome, String> {
    let started = Instant::now();
    let old = match scene.wait_until_whole() {
        Ok(old) => old,
        Err(what) => return Ok(Outcome::lost(what, Vec::new())),
    };
    let (ports, tag) = (Ports::default(), scene.tag.clone());
    scene.publish(&ports);
    let field = Field::new(&ports, &tag, old);
    let ill = fault.silences().then_some(old);
    let (course, stall) = thread::scope(|scope| {
        let ending = Ending(&field);
        for number in 0..CLIENTS {
            let client = Client::new(&field, number, random.fork());
            scope.spawn(move || client.run());
        }
        let watcher = scope.spawn(|| weather::watch(&field, ill));
        let course = run(scene, fault, old, &field, random);
        drop(ending);
        (course, watcher.join().expect("a watcher that has not panicked"))
    });
    match course {
        Ok(course) => Ok(outcome(&field, &course, started, stall)),
        Err(Stop::Lost(what)) => {
            let overlaps = field.ledger.overlaps();
            Ok(Outcome::lost(what, overlaps.iter().map(|overlap| shown(overlap, started)).collect()))
        }
        Err(Stop::Stuck(what)) => match stall {
            Some(stall) => Ok(Outcome::lost(format!("{what}; {stall}"), Vec::new())),
            None => Err(what),
        },
    }
}

fn run(
    scene: &mut Scene,
    fault: Fault,
    old: usize,
    field: &Field<'_>,
    random: &mut fastrand::Rng,
) -> Result<Course, Stop> {
    let begun = Instant::now();
    wait_for_grants(field, old, begun).map_err(Stop::Stuck)?;
    thread::sleep(Duration::from_millis(random.u64(CALM_MS)));
    fault.prepare(scene, old);
    fault.strike(scene, old);
    let struck = Instant::now();
    if fault.is_seen_at_once(random) {
        scene.promote_a_replica_of(old);
    }
    let new = scene.wait_for_promotion(old).map_err(Stop::Lost)?;
    let promoted = Instant::now();
    field.announce(new);
    // As an operator would do who wants locks before all replicas are back: so nothing but the period holds grants back.
    scene.require_replicas(new, 0);
    fault.end(scene, old, new, field.ports, random);
    let last = scene.wait_until_whole().map_err(Stop::Lost)?;
    scene.require_replicas(last, REPLICAS);
    wait_for_grants(field, last, promoted).map_err(Stop::Stuck)?;
    Ok(Course { old, new, struck, promoted, last })
}

fn wait_for_grants(field: &Field<'_>, node: usize, since: Instant) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while field.ledger.count(node, since) < GRANTS {
        if Instant::now() > deadline {
            return Err(format!("node {node} grants nothing, though it is the master"));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn outcome(field: &Field<'_>, course: &Course, started: Instant, stall: Option<String>) -> Outcome {
    let grants = field.ledger.grants();
    let ms = |at: Instant| at.saturating_duration_since(started).as_millis();
    let Course { old, new, struck, promoted, last } = *course;
    let when = format!(
        "node {old} was struck at {} ms, node {new} was a master at {} ms at the latest\n",
        ms(struck),
        ms(promoted)
    );
    let overlaps = field.ledger.overlaps();
    let overlaps = overlaps.iter().map(|overlap| format!("{when}{}", shown(overlap, started))).collect();
    let replaced = (new != last).then(|| format!("node {new} was replaced by node {last}"));
    Outcome {
        grants: grants.len(),
        grants_of_old: field.ledger.count(old, struck),
        grants_of_new: field.ledger.count(new, promoted),
        put_off: field.put_off(),
        until_promotion: promoted - struck,
        gap: longest_gap(&grants),
        overlaps,
        disturbance: stall.or(replaced),
        is_lost: false,
    }
}

impl Outcome {
    fn lost(what: String, overlaps: Vec<String>) -> Self {
        Self {
            grants: 0,
            grants_of_old: 0,
            grants_of_new: 0,
            put_off: 0,
            until_promotion: Duration::ZERO,
            gap: Duration::ZERO,
            overlaps,
            disturbance: Some(what),
            is_lost: true,
        }
    }
}

fn longest_gap(grants: &[Grant]) -> Duration {
    let gaps = grants.windows(2).map(|pair| pair[1].at.saturating_duration_since(pair[0].at));
    gaps.max().unwrap_or_default()
}
