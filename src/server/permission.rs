//! Decides whether a module may write now, outside of a command.
//!
//! The server holds back a client's write where it must not run. It does not hold back what a module writes from a
//! timer, so the module has to ask. A write during a pause aborts the server, and a write that the server would refuse
//! to a client would let an isolated old master go on writing.

use std::io;
use std::slice::from_raw_parts;

use redis_module::raw;

use super::cluster_slots::ClusterSlots;
use super::context::{Context, ContextFlags};
use super::kinds::{Probe, Slot};
use super::string::StringRef;

impl<M> Context<'_, M> {
    /// Returns whether the server takes writes at all: it is not paused, failing over or loading, and not a replica.
    ///
    /// A replica that accepts its clients' writes does not count, because its keys are its master's.
    pub fn accepts_writes(&self) -> bool {
        // SAFETY: the function takes nothing and reads the server's state.
        let paused = unsafe { api!(RedisModule_AvoidReplicaTraffic()) } != 0;
        !paused && !self.flags().intersects(ContextFlags::REPLICA | ContextFlags::LOADING)
    }

    /// Returns the state of the key's slot.
    pub fn slot_of(&mut self, key: StringRef<'_>) -> Slot {
        if !self.flags().contains(ContextFlags::CLUSTER) {
            return Slot::Ours;
        }
        // SAFETY: context and key are valid while this callback runs; "s" takes the one string that follows.
        let reply = unsafe { api!(RedisModule_Call(self.raw(), c"EXISTS".as_ptr(), c"s".as_ptr(), key.raw())) };
        let refused = io::Error::last_os_error().raw_os_error();
        match (was_executed(reply), refused) {
            (true, _) => Slot::Ours,
            (false, Some(libc::EPERM)) => Slot::Elsewhere,
            (false, _) => Slot::Unserved,
        }
    }

    /// Returns the slots of this node, or `None` where the server does not say.
    pub fn cluster_slots(&mut self) -> Option<ClusterSlots> {
        let (cluster, nodes) = (c"CLUSTER".as_ptr(), c"NODES".as_ptr());
        // SAFETY: the context is valid while this callback runs; "c" takes a C string. A reply that is not null is the
        // module's to read and to free, once; its text, which is null if it is none, is copied before that.
        unsafe {
            let reply = api!(RedisModule_Call(self.raw(), cluster, c"c".as_ptr(), nodes));
            if reply.is_null() {
                return None;
            }
            let mut len = 0;
            let text = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
            let slots = if text.is_null() { None } else { ClusterSlots::parse(from_raw_parts(text.cast(), len)) };
            api!(RedisModule_FreeCallReply(reply));
            slots
        }
    }

    /// Returns whether the server would accept a client's write to this key now: it has enough replicas, the disk works
    /// and the slot is served.
    ///
    /// The probe runs in the mode in which scripts write. It can expire the key.
    pub fn accepts_write_to(&mut self, key: StringRef<'_>, probe: Probe) -> bool {
        let nothing = c"".as_ptr();
        // SAFETY: as in `slot_of`; "c" takes a C string, "E" and "S" nothing. Errors are asked for as replies ("E"),
        // because Valkey 9.1 crashes when it refuses a command in this mode without an error to return.
        let reply = unsafe {
            match probe {
                Probe::Hash => {
                    api!(RedisModule_Call(self.raw(), c"HDEL".as_ptr(), c"ESsc".as_ptr(), key.raw(), nothing))
                }
                Probe::SortedSet => {
                    let (remove, from, to) = (c"ZREMRANGEBYRANK".as_ptr(), c"1".as_ptr(), c"0".as_ptr());
                    api!(RedisModule_Call(self.raw(), remove, c"ESscc".as_ptr(), key.raw(), from, to))
                }
                Probe::String => {
                    let (setrange, offset) = (c"SETRANGE".as_ptr(), c"0".as_ptr());
                    api!(RedisModule_Call(self.raw(), setrange, c"ESscc".as_ptr(), key.raw(), offset, nothing))
                }
            }
        };
        was_executed(reply)
    }
}

/// Returns whether the server executed a command, according to its reply. Frees the reply.
pub(super) fn was_executed(reply: *mut raw::RedisModuleCallReply) -> bool {
    if reply.is_null() {
        return false;
    }
    // SAFETY: a reply that is not null is the module's to read and to free, once.
    unsafe {
        let kind = api!(RedisModule_CallReplyType(reply));
        api!(RedisModule_FreeCallReply(reply));
        kind as isize != raw::REDISMODULE_REPLY_ERROR
    }
}
