//! May the module write now, of its own accord?
//!
//! A client's write command is held back by the server where it must not run. What the module does from a timer or an
//! event is not: it has to ask. A write during a pause aborts the server, and one that the server would refuse to a
//! client would let an isolated old master go on granting.

use std::io;

use redis_module::raw;

use super::clock;
use super::context::{Context, ContextFlags};
use super::state;
use super::text::Text;
use crate::core::Kind;

/// Whether a key is this node's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// It is. Always, outside a cluster.
    Ours,
    /// Its slot is another node's. Or the slot is on its way there and the key is missing here: it may exist there.
    Elsewhere,
    /// The cluster is down.
    Unserved,
}

/// Whether anything may be written: not while paused, failing over or loading, not soon after the loop stood still, and
/// not by a replica, even one that takes its clients' writes: its locks are its master's.
pub fn server_takes_writes(ctx: Context<'_>) -> bool {
    // SAFETY: the function takes nothing and reads the server's state.
    let paused = unsafe { api!(RedisModule_AvoidReplicaTraffic()) } != 0;
    let now = clock::steady_ms();
    let unsettled = state::with(|state| state.stall.is_unsettled(now));
    !paused && !unsettled && !ctx.flags().intersects(ContextFlags::REPLICA | ContextFlags::LOADING)
}

/// Whether the key is this node's to read.
pub fn slot_of(ctx: Context<'_>, key: Text<'_>) -> Slot {
    if !ctx.flags().contains(ContextFlags::CLUSTER) {
        return Slot::Ours;
    }
    // SAFETY: context and key are valid while this callback runs; "s" takes the one string that follows.
    let reply = unsafe { api!(RedisModule_Call(ctx.raw(), c"EXISTS".as_ptr(), c"s".as_ptr(), key.raw())) };
    if reply.is_null() {
        let elsewhere = io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
        return if elsewhere { Slot::Elsewhere } else { Slot::Unserved };
    }
    was_run(reply);
    Slot::Ours
}

/// Whether the server would take a client's write to this key now: enough replicas, a disk that works, a slot that is
/// served. Asked in the mode in which scripts write, by a write that changes nothing and creates nothing: no bytes into
/// a String or an empty key, or the removal of the field "" of a Hash, which no owner is called. The key must not be
/// open, because the question can expire it.
pub fn write_is_welcome(ctx: Context<'_>, key: Text<'_>, present: Option<Kind>) -> bool {
    let nothing = c"".as_ptr();
    // SAFETY: as in `slot_of`; "c" takes a C string, "E" and "S" nothing.
    let reply = unsafe {
        if present == Some(Kind::Reentrant) {
            api!(RedisModule_Call(ctx.raw(), c"HDEL".as_ptr(), c"ESsc".as_ptr(), key.raw(), nothing))
        } else {
            let offset = c"0".as_ptr();
            api!(RedisModule_Call(ctx.raw(), c"SETRANGE".as_ptr(), c"ESscc".as_ptr(), key.raw(), offset, nothing))
        }
    };
    was_run(reply)
}

/// Whether the server ran a command that it was asked to run, going by the reply. Refusals are asked for as replies
/// ("E"), because Valkey 9.1 crashes when it refuses a command and has no words to put.
fn was_run(reply: *mut raw::RedisModuleCallReply) -> bool {
    if reply.is_null() {
        return false;
    }
    // SAFETY: a reply that is not null is ours to read and to free, once.
    unsafe {
        let kind = api!(RedisModule_CallReplyType(reply));
        api!(RedisModule_FreeCallReply(reply));
        kind as isize != raw::REDISMODULE_REPLY_ERROR
    }
}
