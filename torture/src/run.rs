//! One run from its start to its verdict.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::faults::{self, Disturber};
use crate::ground::{Ground, Kind};
use crate::keys::{DATABASES, Keys};
use crate::member::Member;
use crate::notified::Notified;
use crate::owed::Terms;
use crate::scene::{Scene, text_of};
use crate::world::World;
use crate::{Part, bursts, cluster, ending, network, owed, pulse, quiet, settings, watch};

/// What remains for the last answers and the checks of the end.
const ENDING: Duration = Duration::from_secs(6);
const PROGRESS: Duration = Duration::from_secs(5);

/// What a thread does until the run is over.
type Work = fn(&World, fastrand::Rng);

/// What is to be done.
pub struct Plan {
    pub started: Instant,
    pub length: Duration,
    pub seed: u64,
    pub clients: usize,
    pub ground: Option<Kind>,
    pub without: Vec<Part>,
}

/// How a run has ended, with its figures.
pub enum Verdict {
    Held(String),
    Broken(String),
    /// Nothing is wrong, and nothing is known either: what was to be tried has not happened.
    NothingMet(String),
}

/// Runs it all.
pub fn run(plan: &Plan) -> Verdict {
    try_run(plan).unwrap_or_else(Verdict::Broken)
}

/// The same; Err where the servers do not start.
fn try_run(plan: &Plan) -> Result<Verdict, String> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let clock = Clock::new();
    if clock.is_none() && plan.ground == Some(Kind::Clock) {
        return Err("this server has no clock that can be set: see docs/reliability.md".to_owned());
    }
    let ground = Ground::choose(plan.ground, clock.is_some(), &mut random);
    println!("Seed {}: {} clients, {ground:?}", plan.seed, plan.clients);
    // Not that of the program, which has tried a clock on a server first.
    let started = Instant::now();
    let mut scene = Scene::start(&ground, clock).map_err(|log| format!("the server does not start\n{log}"))?;
    let deadline = plan.started + plan.length.saturating_sub(ENDING);
    let keys = Keys::new(ground.keys_in_each_part, ground.evicts(), &scene.suffixes());
    let mut without = plan.without.clone();
    if !ground.kind().keeps_its_server() {
        without.push(Part::Settings);
    }
    let world = World::new(&scene, &ground, started, deadline, keys, without);
    world.settings.start_with(ground.max_lease_ms, ground.recovery_ms);
    println!("The server listens on port {}", scene.server().port());

    let memory = world.connect(0, false).as_mut().and_then(ending::memory_of_locks).unwrap_or_default();
    disturb(&world, &mut scene, &ground, plan, &mut random, |scene| {
        ending::count_handovers(&world);
        if ground.kind() == Kind::Replicas {
            faults::compare_replica(&world, scene);
        }
        if ending::check(&world, ground.appends, memory).is_none() && !world.court.is_over() {
            world.court.charge("the server lives", "a connection was closed at the end of the run".to_owned());
        }
    });
    let moves_whole_slots = scene.cluster().is_some_and(|cluster| cluster::moves_slots(&cluster.nodes()[0]));
    let terms = Terms { length: plan.length, ground: &ground, without: world.without(), moves_whole_slots };
    let missing = owed::missing(&terms, &world.figures);
    Ok(verdict(&world, scene, &missing))
}

/// Lets everybody loose until the deadline, and makes the checks of the end.
fn disturb(
    world: &World,
    scene: &mut Scene,
    ground: &Ground,
    plan: &Plan,
    random: &mut fastrand::Rng,
    end: impl FnOnce(&mut Scene),
) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        for database in 0..if world.in_cluster() { DATABASES } else { 1 } {
            scope.spawn(move || pulse::feel(world, database, || done.load(Ordering::Relaxed)));
        }
        thread::scope(|scope| {
            everybody(scope, world, Disturber::new(world, scene, ground, random.fork()), plan, random)
        });
        end(scene);
        done.store(true, Ordering::Relaxed);
    });
}

fn everybody<'s>(
    scope: &'s Scope<'s, '_>,
    world: &'s World,
    disturber: Disturber<'s>,
    plan: &Plan,
    random: &mut fastrand::Rng,
) {
    for number in 0..plan.clients {
        let member = Member::new(world, number, random.fork());
        scope.spawn(move || member.run());
    }
    // A message tells the end of a lease by the clock, which may be set; a listener is sent away with the slot of its channel.
    for database in 0..if world.in_cluster() || !world.is_clock_steady { 0 } else { DATABASES } {
        let client = Notified::new(world, database, random.fork());
        scope.spawn(move || client.run());
    }
    scope.spawn(move || disturber.run());
    let parts = [
        (Part::Foreign, faults::meddle as Work),
        (Part::Bursts, bursts::run),
        (Part::Settings, settings::change),
        (Part::Network, network::run),
    ];
    let wanted = parts.iter().filter(|(part, _)| world.has(*part)).map(|(_, work)| *work);
    let quiet = world.has_quiet_locks.then_some(quiet::run as Work);
    for work in wanted.chain([watch::watch as Work]).chain(quiet) {
        let random = random.fork();
        scope.spawn(move || work(world, random));
    }
    scope.spawn(|| show_progress(world));
}

fn show_progress(world: &World) {
    while world.goes_on() {
        let left = world.deadline.saturating_duration_since(Instant::now());
        world.rest(PROGRESS.min(left));
        ending::count_handovers(world);
        world.figures.most_together.set(world.ledger.most_together() as u64);
        println!("  {}", world.figures);
    }
}

/// Ends the server, which complains if it has crashed, and says how it went.
fn verdict(world: &World, scene: Scene, missing: &[String]) -> Verdict {
    let complaint = catch_unwind(AssertUnwindSafe(|| drop(scene))).err();
    let broken = world.court.verdict().map(ToString::to_string);
    let crash = complaint.map(|panic| format!("the server crashed: {}", text_of(panic.as_ref())));
    let parts: Vec<String> = crash.into_iter().chain(broken).collect();
    if !parts.is_empty() {
        Verdict::Broken(format!("{}\n{}", parts.join("\n"), world.figures))
    } else if missing.is_empty() {
        Verdict::Held(world.figures.to_string())
    } else {
        Verdict::NothingMet(format!("no {}; {}", missing.join(", no "), world.figures))
    }
}
