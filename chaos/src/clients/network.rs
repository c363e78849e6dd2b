//! Bad networks: some clients reach the server through a proxy that resets their connections, drops the bytes of one
//! direction or of both without the end of the stream, or delays them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use support::connection::Connection;
use support::proxy::Road;

use crate::link::{Link, PATIENCE};
use crate::run::Run;
use crate::scenario::Scenario;

/// The longest time for which the other side of a connection does not learn of its end.
const MAX_SILENCE_MS: u64 = 800;
/// The time in which delayed bytes reach the other side.
const PASSING: Duration = Duration::from_millis(50);

type Effect = fn(&Road);

const DROP_REQUESTS: Effect = |road| road.requests.fall_silent();
const DROP_REPLIES: Effect = |road| road.replies.fall_silent();
const RESET: Effect = Road::reset;
const LET_PASS: Effect = Road::let_pass;
/// The connection stays open until then, also without its client.
const STAY: Effect = |_| ();

/// The path of one connection through such a network.
pub struct NetworkPath {
    road: Arc<Road>,
    is_disturbed: AtomicBool,
}

impl NetworkPath {
    /// Whether the network does something to it: then replies can be late, or never come.
    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed.load(Ordering::Relaxed)
    }

    /// Plans effects, each some time after the one before. They keep the connection open, also after the client has
    /// closed it.
    fn plan(&self, effects: Vec<(Duration, Effect)>) {
        self.is_disturbed.store(true, Ordering::Relaxed);
        let road = Arc::clone(&self.road);
        thread::spawn(move || {
            for (after, effect) in effects {
                sleep(after);
                effect(&road);
            }
        });
    }
}

/// Opens a connection through such a network; `None` if the run is over.
pub fn connect(run: &Run, database: u32, resp3: bool) -> Option<Link> {
    let (port, selected) = run.address_of(database);
    let open = || {
        let (client, road) = Road::open(port, |port| Connection::open(port, PATIENCE)).ok()?;
        road.let_pass();
        let path = NetworkPath { road: Arc::new(road), is_disturbed: AtomicBool::new(false) };
        Link::of(&run.history, client.ok()?, port, Some(path)).greet(selected, resp3)
    };
    let link = (!run.is(Scenario::Soak)).then(open).flatten();
    link.map(|link| link.for_database(database)).or_else(|| run.connect(database, resp3))
}

/// Resets the connection soon, or later.
pub fn reset_soon(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    if let Some(path) = link.path() {
        run.counters.count("network: resets");
        path.plan(vec![(Duration::from_millis(random.u64(..1000)), RESET)]);
    }
}

/// Now and then, disturbs the connection just before a request is sent.
pub fn disturb(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    let Some(path) = link.path().filter(|path| !path.is_disturbed() && random.u8(..6) == 0) else { return };
    let now = Duration::ZERO;
    let [soon, silence] = [30, MAX_SILENCE_MS].map(|ms| Duration::from_millis(random.u64(..ms)));
    let first = [DROP_REQUESTS, DROP_REPLIES][random.usize(..2)];
    let kind = match random.u8(..6) {
        0 => {
            path.plan(vec![(soon, RESET)]);
            "network: resets"
        }
        1 | 2 => {
            first(&path.road);
            path.plan(vec![(silence, RESET)]);
            "network: half-open connections"
        }
        3 => {
            path.plan(vec![(soon, DROP_REQUESTS), (now, DROP_REPLIES), (silence, RESET)]);
            "network: silent connections"
        }
        // Late, and perhaps after its client has closed the connection.
        _ => {
            first(&path.road);
            path.plan(vec![(silence, LET_PASS), (PASSING, STAY)]);
            "network: delays"
        }
    };
    run.counters.count(kind);
}
