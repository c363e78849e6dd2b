//! Bad networks: some clients reach the server through a proxy that resets their connections, drops the bytes of one
//! direction or of both without the end of the stream, or delays them.

use std::time::Duration;

use support::connection::Connection;
use support::proxy::Road;

use crate::link::{Effect, Link, NetworkPath, PATIENCE};
use crate::run::Run;
use crate::scenario::Scenario;

/// The longest time for which the other side of a connection does not learn of its end.
const MAX_SILENCE_MS: u64 = 800;
const PASSING: Duration = Duration::from_millis(50);

const DROP_REQUESTS: Effect = |road| road.requests.fall_silent();
const DROP_REPLIES: Effect = |road| road.replies.fall_silent();
const RESET: Effect = Road::reset;
const LET_PASS: Effect = Road::let_pass;
/// The connection stays open until then, also without its client.
const STAY: Effect = |_| ();

pub fn connect(run: &Run, database: u32, resp3: bool) -> Option<Link> {
    let (port, selected) = run.address_of(database);
    let open = || {
        let (client, road) = Road::open(port, |port| Connection::open(port, PATIENCE)).ok()?;
        road.let_pass();
        Link::of(&run.history, client.ok()?, port, Some(NetworkPath::new(road))).greet(selected, resp3)
    };
    let link = (!run.is(Scenario::Soak)).then(open).flatten();
    link.map(|link| link.for_database(database)).or_else(|| run.connect(database, resp3))
}

/// Whether the network does something to a connection: then replies can be late, or never come.
pub fn is_disturbed(link: &Link) -> bool {
    link.path().is_some_and(NetworkPath::is_disturbed)
}

pub fn reset_soon(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    if let Some(path) = link.path() {
        run.counters.count("network: resets");
        path.plan(vec![(Duration::from_millis(random.u64(..1000)), RESET)]);
    }
}

/// Now and then, disturbs the connection just before a request is sent.
pub fn disturb(run: &Run, link: &Link, random: &mut fastrand::Rng) {
    let Some(path) = link.path().filter(|_| !is_disturbed(link) && random.u8(..6) == 0) else { return };
    let now = Duration::ZERO;
    let [soon, silence] = [30, MAX_SILENCE_MS].map(|ms| Duration::from_millis(random.u64(..ms)));
    let first = [DROP_REQUESTS, DROP_REPLIES][random.usize(..2)];
    let (kind, effects) = match random.u8(..6) {
        0 => ("network: resets", vec![(soon, RESET)]),
        1 | 2 => ("network: half-open connections", vec![(now, first), (silence, RESET)]),
        3 => ("network: silent connections", vec![(soon, DROP_REQUESTS), (now, DROP_REPLIES), (silence, RESET)]),
        // Late, and perhaps after its client has closed the connection.
        _ => ("network: delays", vec![(now, first), (silence, LET_PASS), (PASSING, STAY)]),
    };
    path.plan(effects);
    run.counters.count(kind);
}
