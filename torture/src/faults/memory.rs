//! Memory that runs out.

use std::time::Duration;

use super::Disturber;
use crate::ending;
use crate::link::Link;

/// How much may be added before it is too much, in bytes: a client that waits takes 35 KB of them.
const ROOM: i64 = 400_000;

/// What the server says of keys that it has evicted, and of requests that it has refused.
fn ran_out(link: &mut Link) -> Option<(i64, Option<String>)> {
    Some((ending::figure(link, "stats", "evicted_keys")?, ending::text(link, "errorstats", "errorstat_OOM")))
}

impl Disturber<'_> {
    /// Leaves the server with little more memory than it uses, or with less, for a short while.
    pub(super) fn squeeze(&mut self) {
        let Some(mut link) = self.world.connect(0, false) else { return };
        let Some(used) = ending::used_memory(&mut link) else { return };
        let before = ran_out(&mut link);
        let limit = used + self.random.i64(-ROOM / 4..ROOM);
        self.make("maxmemory", &format!("CONFIG SET maxmemory {limit}"));
        let span = Duration::from_millis(self.random.u64(20..400));
        self.world.rest(span);
        let after = ran_out(&mut link);
        self.found(before.zip(after).is_some_and(|(before, after)| before != after));
        self.relax();
    }

    /// There is room again.
    fn relax(&mut self) {
        let line = "CONFIG SET maxmemory 0";
        self.world.note_fault(line);
        while !self.world.court.is_over() && !self.run_line(line) {}
    }
}
