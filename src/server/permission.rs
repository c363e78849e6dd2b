//! Decides whether a module may write now, outside of a command.
//!
//! The server suspends a client's write while it must not run. It does not suspend the writes of a module's timer, so the module
//! has to ask. A write during a pause aborts the server. A write that the server would refuse to a client would let an isolated
//! old master continue to write.

use std::io;

use super::calls::was_executed;
use super::cluster_slots::ClusterSlots;
use super::context::{Context, ContextFlags};
use super::kinds::{Probe, Slot};
use super::string::StringRef;

impl<M> Context<'_, M> {
    /// Returns whether the server accepts writes at all: it is not paused, failing over or loading, and is not a replica.
    ///
    /// This is `false` on a replica that accepts its clients' writes, because its keys belong to its master.
    pub fn accepts_writes(&self) -> bool {
        // SAFETY: the function takes nothing and reads the server's state.
        let paused = unsafe { api!(RedisModule_AvoidReplicaTraffic()) } != 0;
        !paused && !self.flags().intersects(ContextFlags::REPLICA | ContextFlags::LOADING)
    }

    /// Returns the state of the slot of a key. The server may expire the key.
    pub fn slot_of(&mut self, key: StringRef<'_>) -> Slot {
        if !self.flags().contains(ContextFlags::CLUSTER) {
            return Slot::Ours;
        }
        // SAFETY: context and key are valid while this callback runs; "s" takes the one string that follows.
        let reply = unsafe { call!(self.raw(), c"EXISTS", c"s", key.raw()) };
        let refused = io::Error::last_os_error().raw_os_error();
        match (was_executed(reply), refused) {
            (true, _) => Slot::Ours,
            (false, Some(libc::EPERM)) => Slot::Elsewhere,
            (false, _) => Slot::Unserved,
        }
    }

    /// Returns the slots of this node, or `None` if the server is not in a cluster.
    pub fn cluster_slots(&mut self) -> Option<ClusterSlots> {
        // SAFETY: the context is valid while this callback runs; "c" takes a C string.
        let reply = unsafe { call!(self.raw(), c"CLUSTER", c"c", c"NODES".as_ptr()) }?;
        ClusterSlots::parse(reply.whole().bytes()?)
    }

    /// Returns whether the server would accept a client's write to this key now: it has enough replicas, the disk works
    /// and the slot is served.
    ///
    /// The probe runs in the mode in which scripts write. It can expire the key.
    pub fn accepts_write_to(&mut self, key: StringRef<'_>, probe: Probe) -> bool {
        let (ctx, key, nothing) = (self.raw(), key.raw(), c"".as_ptr());
        // SAFETY: as in `slot_of`; "c" takes C strings. Errors are asked for as replies ("E"), because Valkey 9.1 crashes when it
        // refuses a command in this mode ("S") without an error to return.
        let reply = unsafe {
            match probe {
                Probe::Hash => call!(ctx, c"HDEL", c"ESsc", key, nothing),
                Probe::SortedSet => call!(ctx, c"ZREMRANGEBYRANK", c"ESscc", key, c"1".as_ptr(), c"0".as_ptr()),
                Probe::String => call!(ctx, c"SETRANGE", c"ESscc", key, c"0".as_ptr(), nothing),
            }
        };
        was_executed(reply)
    }
}
