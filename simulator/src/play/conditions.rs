//! The conditions that keep the module from its work at the moment.

use super::Play;
use crate::checker::Conditions;

impl Play {
    pub(super) fn conditions(&mut self) -> Conditions {
        let suspension = self.stalls.suspension(self.time);
        let obstructed = self.fenced
            || self.cluster_is_down
            || self.replica_until.is_some()
            || self.noticed_at.is_some()
            || self.time < self.paused_until
            || self.time < self.unsettled_until
            || suspension.may_refuse_leases();
        if obstructed {
            self.obstructed_at = self.obstructed_at.max(self.time);
        }
        self.granting_at = match suspension.most_ms() {
            0 => self.granting_at.min(self.time),
            ms => self.time + ms,
        };
        let now = self.master.now_ms();
        let wall = |time: i64| now - self.time + time;
        Conditions {
            now,
            writable_since: (!obstructed).then(|| wall(self.obstructed_at)),
            turning_since: wall(self.stalled_at),
            granting_since: (!suspension.may_be()).then(|| wall(self.granting_at)),
            suspension,
            steady: self.time,
        }
    }
}
