//! Feels the server's pulse: a PING every few milliseconds tells when it was held up, by a fault or by a busy machine.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::Reply;

use crate::world::World;

const EVERY: Duration = Duration::from_millis(5);
/// What an answer may take without being noted.
const SOON: Duration = Duration::from_millis(10);

/// Notes in the world's weather when the server that has this database does not answer. It goes on until `done`, also when the run is over.
pub fn feel(world: &World, database: u32, done: impl Fn() -> bool) {
    let mut link = None;
    // A connection that is killed while it waits for its answer has felt nothing yet.
    let mut unanswered = None;
    while !done() && !world.court.is_over() {
        let sent = *unanswered.get_or_insert_with(Instant::now);
        world.weather.probe(database, sent);
        let open = world.still(link.take()).or_else(|| world.connect(database, false));
        link = open.and_then(|mut link| (link.run("PING") != Reply::Closed).then_some(link));
        if link.is_none() {
            continue;
        }
        let took = sent.elapsed();
        world.weather.answered(database, (took > SOON).then_some(took));
        unanswered = None;
        let begun = Instant::now();
        // Should it oversleep, others may ask before it can say so.
        world.weather.probe(database, begun + EVERY + SOON);
        sleep(EVERY);
        // Who oversleeps has no processor, and neither may the others have.
        let now = Instant::now();
        if now - begun > EVERY + SOON {
            world.weather.was_bad(begun, now);
        }
    }
}

/// How long this thread has been ready to run and had no processor, since it began (see proc_pid_schedstat(5)); zero where
/// the kernel does not say.
pub fn starved() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split(' ').nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}
