//! What keeps a server from writing.

use super::UnixMs;
use super::faults::{self, Fault};
use super::reply::Reply;

/// Why a server does not write now.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteBlockers {
    pub replica: bool,
    /// Until when writes are postponed.
    pub paused_until: Option<UnixMs>,
    pub fence: Option<WriteFence>,
    /// The world has changed while the server stood still, and it does not know yet.
    pub unnoticed: Option<Unnoticed>,
    /// A save without a fork reads all keys: outside of commands, none of them is opened for writing.
    pub saves_without_fork: bool,
    /// Outside of commands, nothing that the module replicates is taken.
    pub replicates_nothing: bool,
}

/// Why a server refuses its clients' writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFence {
    /// Fewer replicas than `min-replicas-to-write`.
    NoReplicas,
    /// The disk does not take the AOF.
    Disk,
}

/// What has happened to a server that it will notice when its cron has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnoticed {
    /// Its replicas are gone: [`WriteFence::NoReplicas`].
    NoReplicas,
    /// Another node has become the master.
    Replaced,
}

impl WriteFence {
    pub(super) fn refusal(self) -> Reply {
        Reply::error(match self {
            Self::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
            Self::Disk => "MISCONF Errors writing to the AOF file: No space left on device",
        })
    }
}

impl WriteBlockers {
    /// Whether writes are postponed at `now`.
    pub fn is_paused(&self, now: UnixMs) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Whether the module sees a replica.
    pub fn is_seen_as_replica(&self) -> bool {
        self.replica && !faults::has(Fault::ReplicaHidden)
    }

    /// Why what is written at `now` of the module's own accord would be wrong, if it would.
    pub fn objection(&self, now: UnixMs) -> Option<&'static str> {
        if self.replica {
            Some("a write on a replica")
        } else if self.is_paused(now) {
            Some("a write in a pause")
        } else if self.fence.is_some() {
            Some("a write where the server would refuse a client's")
        } else if self.unnoticed.is_some() {
            Some("a write before the server could see what happened while it stood still")
        } else {
            None
        }
    }
}
