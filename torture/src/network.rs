//! Networks that are bad: some clients reach the server through a proxy, which resets their connections, swallows what is sent
//! in one direction or in both while the other side knows nothing of it, or lets it pass later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::connection::Connection;
use support::proxy::Road;

use crate::Part;
use crate::link::Link;
use crate::world::World;

const CONNECTING: Duration = Duration::from_secs(10);
/// How exactly a deed is done when it is due.
const TICK: Duration = Duration::from_millis(1);
/// For how long the other side of a connection may know nothing of its end.
const LONGEST_SILENCE_MS: u64 = 800;
/// In which what was held back reaches the other side.
const PASSING: Duration = Duration::from_millis(50);

/// The way of one connection through such a network.
pub struct Way {
    road: Road,
    is_disturbed: AtomicBool,
}

impl Way {
    /// Whether something was, or will be, done to it: then answers may be late, or never come.
    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed.load(Ordering::Relaxed)
    }

    fn make(&self, deed: Deed) {
        match deed {
            Deed::SwallowRequests => self.road.requests.fall_silent(),
            Deed::SwallowReplies => self.road.replies.fall_silent(),
            Deed::LetPass => self.road.let_pass(),
            Deed::Reset => self.road.reset(),
            Deed::Stay => {}
        }
    }
}

/// What a network does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    SwallowRequests,
    SwallowReplies,
    LetPass,
    Reset,
    /// Nothing, but until then the connection is there, also without its client.
    Stay,
}

struct Plan {
    at: Instant,
    deed: Deed,
    way: Arc<Way>,
}

/// What is to be done to which connections. It has them until then, also when their clients are gone.
#[derive(Default)]
pub struct Network {
    plans: Mutex<Vec<Plan>>,
    is_over: AtomicBool,
}

impl Network {
    fn plan(&self, after: Duration, deed: Deed, way: &Arc<Way>) {
        way.is_disturbed.store(true, Ordering::Relaxed);
        let plan = Plan { at: Instant::now() + after, deed, way: Arc::clone(way) };
        self.plans.lock().expect("no panic").push(plan);
        if self.is_over.load(Ordering::SeqCst) {
            self.make_all();
        }
    }

    fn make_due(&self) {
        let now = Instant::now();
        let mut plans = self.plans.lock().expect("no panic");
        let (mut due, later): (Vec<Plan>, _) = plans.drain(..).partition(|plan| plan.at <= now);
        *plans = later;
        drop(plans);
        due.sort_by_key(|plan| plan.at);
        due.iter().for_each(|plan| plan.way.make(plan.deed));
    }

    /// Lets everything end.
    fn make_all(&self) {
        let plans = std::mem::take(&mut *self.plans.lock().expect("no panic"));
        plans.iter().for_each(|plan| plan.way.road.reset());
    }
}

/// Makes what is planned until the run is over.
pub fn run(world: &World, _: fastrand::Rng) {
    while world.goes_on() {
        world.network.make_due();
        world.rest(TICK);
    }
    world.network.is_over.store(true, Ordering::SeqCst);
    world.network.make_all();
}

/// A connection through such a network; None when the run is over.
pub fn connect(world: &World, database: u32, resp3: bool) -> Option<Link> {
    let way = |port| {
        let (client, road) = Road::open(port, |port| Connection::open(port, CONNECTING)).ok()?;
        road.let_pass();
        Some((client.ok()?, Way { road, is_disturbed: AtomicBool::new(false) }))
    };
    let (port, selected) = world.address_of(database);
    let link = world.has(Part::Network).then(|| Link::open_through(way, port, selected, resp3)).flatten();
    link.map(|link| link.standing_for(database)).or_else(|| world.connect(database, resp3))
}

/// Resets the connection soon, or later.
pub fn reset_soon(world: &World, link: &Link, random: &mut fastrand::Rng) {
    if let Some(way) = link.way() {
        world.figures.fault("network: resets");
        world.network.plan(Duration::from_millis(random.u64(..1000)), Deed::Reset, way);
    }
}

/// Now and then, has something happen to the connection, just before a request is sent.
pub fn disturb(world: &World, link: &Link, random: &mut fastrand::Rng) {
    let Some(way) = link.way().filter(|way| !way.is_disturbed() && random.u8(..6) == 0) else { return };
    let network = &world.network;
    let soon = Duration::from_millis(random.u64(..30));
    let later = soon + Duration::from_millis(random.u64(..LONGEST_SILENCE_MS));
    let first = [Deed::SwallowRequests, Deed::SwallowReplies][random.usize(..2)];
    let kind = match random.u8(..6) {
        0 => {
            network.plan(soon, Deed::Reset, way);
            "network: resets"
        }
        1 | 2 => {
            way.make(first);
            network.plan(later, Deed::Reset, way);
            "network: half-open connections"
        }
        3 => {
            network.plan(soon, Deed::SwallowRequests, way);
            network.plan(soon, Deed::SwallowReplies, way);
            network.plan(later, Deed::Reset, way);
            "network: silent connections"
        }
        // Late, and perhaps when its client has given it up.
        _ => {
            way.make(first);
            network.plan(later, Deed::LetPass, way);
            network.plan(later + PASSING, Deed::Stay, way);
            "network: delays"
        }
    };
    world.figures.fault(kind);
}
