//! Whether the machine was too busy for what a round assumes: that servers look at the time when they mean to.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::connection::{Connection, packed};

use crate::field::Field;
use crate::scene::NODES;

const EVERY: Duration = Duration::from_millis(25);
/// What may pass by unseen. Longer ones add to the time in which a master notices that its replicas are gone.
const STALL: Duration = Duration::from_millis(400);

/// Asks the servers and looks at the clock again and again until the round is over. Returns the first stall that is not
/// due to a fault: the node that is `ill` in this round is not asked.
pub fn watch(field: &Field<'_>, ill: Option<usize>) -> Option<String> {
    let mut links: [Option<Connection>; NODES] = [const { None }; NODES];
    let mut first = None;
    while !field.is_over() {
        let begun = Instant::now();
        sleep(EVERY);
        let slept = begun.elapsed();
        let slowest =
            (0..NODES).filter(|node| Some(*node) != ill).map(|node| (ping(&mut links[node], field, node), node)).max();
        let stall = slowest.filter(|(took, _)| *took > STALL).map(|(took, node)| format!("node {node} took {took:?}"));
        let overslept = (slept > STALL).then(|| format!("{EVERY:?} took {slept:?}"));
        first = first.or(overslept).or(stall);
    }
    first
}

/// How long a node takes to answer. A connection that is closed is made anew the next time.
fn ping(link: &mut Option<Connection>, field: &Field<'_>, node: usize) -> Duration {
    let begun = Instant::now();
    let open = link.take().or_else(|| Connection::open(field.ports.of(node), 10 * STALL).ok());
    *link = open.and_then(answered);
    begun.elapsed()
}

fn answered(mut link: Connection) -> Option<Connection> {
    link.send(&packed(&["PING"])).ok()?;
    link.receive().is_ok().then_some(link)
}
