//! Decides whether a module may write now, outside of a command.
//!
//! The server suspends a client's write while it must not run. It does not suspend the writes of a module's timer, so the module
//! has to ask. A write during a pause aborts the server. A write that the server would refuse to a client would let an isolated
//! old master continue to write.

use std::ffi::CStr;

use super::calls::{CallMode, was_executed};
use super::cluster_slots::ClusterSlots;
use super::context::{Context, ContextFlags};
use super::kinds::{Probe, Slot};
use super::string::StringRef;

/// Returns whether the server suspends all writes: CLIENT PAUSE, or a failover.
pub fn is_paused() -> bool {
    // SAFETY: the function takes nothing and reads the server's state.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

impl<M> Context<'_, M> {
    /// Returns whether the server accepts writes at all: it is not paused, failing over or loading, and is not a replica.
    ///
    /// This is `false` on a replica that accepts its clients' writes, because its keys belong to its master.
    pub fn accepts_writes(&self) -> bool {
        !is_paused() && !self.flags().intersects(ContextFlags::REPLICA | ContextFlags::LOADING)
    }

    /// Returns the state of the slot of a key. The server may expire the key.
    pub fn slot_of(&mut self, key: StringRef<'_>) -> Slot {
        if !self.flags().contains(ContextFlags::CLUSTER) {
            return Slot::Ours;
        }
        match self.call(c"EXISTS", CallMode::Read, &[key.bytes()]) {
            Ok(_) => Slot::Ours,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Slot::Elsewhere,
            Err(_) => Slot::Unserved,
        }
    }

    /// Returns the slots of this node, or `None` if the server is not in a cluster.
    pub fn cluster_slots(&mut self) -> Option<ClusterSlots> {
        let reply = self.call(c"CLUSTER", CallMode::Read, &[b"NODES"]).ok()?;
        ClusterSlots::parse(reply.whole().bytes()?)
    }

    /// Returns whether the server would accept a client's write to this key now: it has enough replicas, the disk works
    /// and the slot is served.
    ///
    /// The probe runs in the mode in which scripts write. It can expire the key.
    pub fn accepts_write_to(&mut self, key: StringRef<'_>, probe: Probe) -> bool {
        let key = key.bytes();
        let (command, arguments): (&CStr, &[&[u8]]) = match probe {
            Probe::Hash => (c"HDEL", &[key, b""]),
            Probe::SortedSet => (c"ZREMRANGEBYRANK", &[key, b"1", b"0"]),
            Probe::String => (c"SETRANGE", &[key, b"0", b""]),
        };
        was_executed(self.call(command, CallMode::Script, arguments))
    }
}
