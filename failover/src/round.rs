//! One round: clients contend, the master is struck by a fault and replaced, the fault ends, and all is as it was.

use std::thread;
use std::time::{Duration, Instant};

use support::happens_within;

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

/// Plays a round; Err if the servers do not do what they must for it.
pub fn play(scene: &mut Scene, fault: Fault, random: &mut fastrand::Rng) -> Result<Outcome, String> {
    let (old, started) = (scene.wait_until_whole()?, Instant::now());
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
    let course = course.map_err(|what| stall.iter().fold(what, |what, stall| format!("{what}\n{stall}")))?;
    Ok(outcome(&field, &course, started, stall))
}

fn run(
    scene: &mut Scene,
    fault: Fault,
    old: usize,
    field: &Field<'_>,
    random: &mut fastrand::Rng,
) -> Result<Course, String> {
    let begun = Instant::now();
    wait_for_grants(field, old, begun)?;
    thread::sleep(Duration::from_millis(random.u64(CALM_MS)));
    fault.prepare(scene, old);
    let struck = Instant::now();
    fault.strike(scene, old);
    if fault.is_seen_at_once(random) {
        scene.promote_a_replica_of(old);
    }
    let new = scene.wait_for_promotion(old)?;
    let promoted = Instant::now();
    field.announce(new);
    // As an operator would do who wants locks before all replicas are back: so nothing but the period holds grants back.
    scene.require_replicas(new, 0);
    fault.end(scene, old, new, field.ports, random);
    let last = scene.wait_until_whole()?;
    scene.require_replicas(last, REPLICAS);
    wait_for_grants(field, last, promoted)?;
    Ok(Course { old, new, struck, promoted, last })
}

fn wait_for_grants(field: &Field<'_>, node: usize, since: Instant) -> Result<(), String> {
    let come = happens_within(PATIENCE, || field.ledger.count(node, since) >= GRANTS);
    come.then_some(()).ok_or_else(|| format!("node {node} grants nothing, though it is the master"))
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
    }
}

fn longest_gap(grants: &[Grant]) -> Duration {
    let gaps = grants.windows(2).map(|pair| pair[1].at.saturating_duration_since(pair[0].at));
    gaps.max().unwrap_or_default()
}
