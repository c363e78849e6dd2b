//! May a module write now, of its own accord?
//!
//! A client's write command is held back by the server where it must not run. What a module does from a timer is not: it has
//! to ask. A write during a pause aborts the server, and one that the server would refuse to a client would let an isolated
//! old master go on writing.

use std::io;

use redis_module::raw;

use super::context::{Context, ContextFlags};
use super::kinds::{Probe, Slot};
use super::string::StringRef;

impl<M> Context<'_, M> {
    /// Whether anything may be written: not while paused, failing over or loading, and not by a replica, even one that takes
    /// its clients' writes: its keys are its master's.
    pub fn takes_writes(&self) -> bool {
        // SAFETY: the function takes nothing and reads the server's state.
        let paused = unsafe { api!(RedisModule_AvoidReplicaTraffic()) } != 0;
        !paused && !self.flags().intersects(ContextFlags::REPLICA | ContextFlags::LOADING)
    }

    /// Whether the key is this node's to read.
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

    /// Whether the server would take a client's write to this key now: enough replicas, a disk that works, a slot that is
    /// served. Asked in the mode in which scripts write. It can expire the key.
    pub fn write_is_welcome(&mut self, key: StringRef<'_>, probe: Probe) -> bool {
        let nothing = c"".as_ptr();
        // SAFETY: as in `slot_of`; "c" takes a C string, "E" and "S" nothing. Errors are asked for as replies ("E"),
        // because Valkey 9.1 crashes when it refuses a command in this mode and has no words to put.
        let reply = unsafe {
            match probe {
                Probe::Hash => {
                    api!(RedisModule_Call(self.raw(), c"HDEL".as_ptr(), c"ESsc".as_ptr(), key.raw(), nothing))
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

/// Whether the server ran a command that it was asked to run, going by the reply, which is given back.
fn was_executed(reply: *mut raw::RedisModuleCallReply) -> bool {
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
