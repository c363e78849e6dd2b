//! The conditions under which a server must not write.

use super::UnixMs;
use super::faults::{self, Fault};
use super::reply::Reply;

/// The conditions that keep a server from writing now.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteBlockers {
    pub replica: bool,
    /// The end of a pause, in Unix milliseconds. Writes are postponed until then.
    pub paused_until: Option<UnixMs>,
    pub fence: Option<WriteFence>,
    /// A change that happened while the server stalled, and that the server has not noticed yet.
    pub unnoticed: Option<Unnoticed>,
    /// Whether a save without a fork reads all keys. The server then opens no key for writing outside of commands.
    pub saves_without_fork: bool,
    /// Whether the server refuses what the module replicates outside of commands.
    pub replicates_nothing: bool,
    /// How often the module has asked whether the server would accept a write.
    pub probes: usize,
}

/// The reason why a server refuses the writes of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFence {
    /// There are fewer replicas than `min-replicas-to-write`.
    NoReplicas,
    /// The server cannot write the AOF to the disk.
    Disk,
}

/// A change that a server notices when its cron has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnoticed {
    /// Its replicas have disconnected: [`WriteFence::NoReplicas`].
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
    /// Returns whether writes are postponed at `now`.
    pub fn is_paused(&self, now: UnixMs) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns whether the server is a replica for the module.
    pub fn is_seen_as_replica(&self) -> bool {
        self.replica && !faults::has(Fault::ReplicaHidden)
    }

    /// Returns why a write outside of commands is wrong at `now`. Returns `None` if it is right.
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
