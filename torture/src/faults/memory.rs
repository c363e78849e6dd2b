//! Memory that runs out.

use std::time::Duration;

use super::Disturber;
use crate::ending;

/// How much may be added before it is too much, in bytes: a client that waits takes 35 KB of them.
const ROOM: i64 = 400_000;

impl Disturber<'_> {
    /// Leaves the server with little more memory than it uses, or with less, for a short while.
    pub(super) fn squeeze(&mut self) {
        let Some(mut link) = self.world.connect(0, false) else { return };
        let Some(used) = ending::used_memory(&mut link) else { return };
        let limit = used + self.random.i64(-ROOM / 4..ROOM);
        self.make("maxmemory", &format!("CONFIG SET maxmemory {limit}"));
        let span = Duration::from_millis(self.random.u64(20..400));
        self.world.rest(span);
        self.relax();
    }

    /// There is room again.
    fn relax(&mut self) {
        let line = "CONFIG SET maxmemory 0";
        self.world.note_fault(line);
        while !self.world.court.is_over() && !self.run_line(line) {}
    }
}
