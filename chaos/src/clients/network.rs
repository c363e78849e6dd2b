//! Bad networks: some clients reach the server through a proxy that resets their connections, drops the bytes of one
//! direction or of both without the end of the stream, or delays them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::connection::Connection;
use support::proxy::Road;

use crate::Part;
use crate::history::locked;
use crate::link::{Link, PATIENCE};
use crate::run::Run;

const TICK: Duration = Duration::from_millis(1);
/// The longest time for which the other side of a connection does not learn of its end.
const MAX_SILENCE_MS: u64 = 800;
/// The time in which delayed bytes reach the other side.
const PASSING: Duration = Duration::from_millis(50);

/// The path of one connection through such a network.
pub struct NetworkPath {
    road: Road,
    is_disturbed: AtomicBool,
}

impl NetworkPath {
    /// Whether the network does something to it: then replies can be late, or never come.
    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed.load(Ordering::Relaxed)
    }

    fn make(&self, effect: Effect) {
        match effect {
            Effect::DropRequests => self.road.requests.fall_silent(),
            Effect::DropReplies => self.road.replies.fall_silent(),
            Effect::LetPass => self.road.let_pass(),
            Effect::Reset => self.road.reset(),
            Effect::Stay => {}
        }
    }
}

/// What a network does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    DropRequests,
    DropReplies,
    LetPass,
    Reset,
    /// Nothing, but until then the connection stays open, also without its client.
    Stay,
}

struct Plan {
    at: Instant,
    effect: Effect,
    path: Arc<NetworkPath>,
}

/// The planned effects. They keep their connections open, also after the clients have closed them.
#[derive(Default)]
pub struct Network {
    plans: Mutex<Vec<Plan>>,
    is_over: AtomicBool,
}

impl Network {
    fn plan(&self, after: Duration, effect: Effect, path: &Arc<NetworkPath>) {
        path.is_disturbed.store(true, Ordering::Relaxed);
        locked(&self.plans).push(Plan { at: Instant::now() + after, effect, path: Arc::clone(path) });
        if self.is_over.load(Ordering::SeqCst) {
            self.reset_all();
        }
    }

    fn make_due(&self) {
        let now = Instant::now();
        let mut plans = locked(&self.plans);
        let (mut due, later): (Vec<Plan>, _) = plans.drain(..).partition(|plan| plan.at <= now);
        *plans = later;
        drop(plans);
        due.sort_by_key(|plan| plan.at);
        due.iter().for_each(|plan| plan.path.make(plan.effect));
    }

    fn reset_all(&self) {
        std::mem::take(&mut *locked(&self.plans)).iter().for_each(|plan| plan.path.road.reset());
    }
}

/// Makes the planned effects until the run is over.
pub fn run(run: &Run, _: fastrand::Rng) {
    while run.goes_on() {
        run.network.make_due();
        run.rest(TICK);
    }
    run.network.is_over.store(true, Ordering::SeqCst);
    run.network.reset_all();
}

/// Opens a connection through such a network; `None` if the run is over.
pub fn connect(run: &Run, database: u32, resp3: bool) -> Option<Link> {
    let (port, selected) = run.address_of(database);
    let open = || {
        let (client, road) = Road::open(port, |port| Connection::open(port, PATIENCE)).ok()?;
        road.let_pass();
        let path = NetworkPath { road, is_disturbed: AtomicBool::new(false) };
        Link::through(&run.history, client.ok()?, path, port).greet(selected, resp3)
    };
    let link = run.has(Part::Network).then(open).flatten();
    link.map(|link| link.for_database(database)).or_else(|| run.connect(database, resp3))
}

/// Resets the connection soon, or later.
pub fn reset_soon(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    if let Some(path) = link.path() {
        run.counters.count("network: resets");
        run.network.plan(Duration::from_millis(random.u64(..1000)), Effect::Reset, path);
    }
}

/// Now and then, disturbs the connection just before a request is sent.
pub fn disturb(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    let Some(path) = link.path().filter(|path| !path.is_disturbed() && random.u8(..6) == 0) else { return };
    let plan = |after, effect| run.network.plan(after, effect, path);
    let soon = Duration::from_millis(random.u64(..30));
    let later = soon + Duration::from_millis(random.u64(..MAX_SILENCE_MS));
    let first = [Effect::DropRequests, Effect::DropReplies][random.usize(..2)];
    match random.u8(..6) {
        0 => {
            plan(soon, Effect::Reset);
            run.counters.count("network: resets");
        }
        1 | 2 => {
            path.make(first);
            plan(later, Effect::Reset);
            run.counters.count("network: half-open connections");
        }
        3 => {
            plan(soon, Effect::DropRequests);
            plan(soon, Effect::DropReplies);
            plan(later, Effect::Reset);
            run.counters.count("network: silent connections");
        }
        // Late, and perhaps after its client has closed the connection.
        _ => {
            path.make(first);
            plan(later, Effect::LetPass);
            plan(later + PASSING, Effect::Stay);
            run.counters.count("network: delays");
        }
    }
}
