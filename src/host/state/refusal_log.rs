//! Log lines for refused requests, refused commands of the module, and writes that were not replicated.
//!
//! Only the first of a burst is logged.

use std::ffi::CStr;

use crate::core::{Burst, Error};
use crate::host::settings::{self, MAX_SESSIONS, MAX_WAITERS};

/// When the last refusal of each type was.
pub struct Refusals {
    queue_full: Burst,
    session_full: Burst,
    call: Burst,
    replication: Burst,
}

impl Refusals {
    pub const fn new() -> Self {
        let [queue_full, session_full, call, replication] = [const { Burst::new() }; 4];
        Self { queue_full, session_full, call, replication }
    }

    /// Records that a request is refused, at a time of the monotonic clock in milliseconds. Returns the line to log, if the
    /// reason is a limit and this is the first such refusal in a minute.
    pub fn record(&mut self, error: Error, now_ms: i64) -> Option<String> {
        match error {
            Error::QueueFull if self.queue_full.begins_at(now_ms) => Some(format!(
                "QUEUEFULL: refusing requests, because lock.max-waiters are waiting ({})",
                settings::limit(&MAX_WAITERS)
            )),
            Error::SessionFull if self.session_full.begins_at(now_ms) => Some(format!(
                "SESSIONFULL: refusing requests, because there are lock.max-sessions sessions ({})",
                settings::limit(&MAX_SESSIONS)
            )),
            _ => None,
        }
    }

    /// Records a refused command of `lock.wake-foreign`. Returns the line to log, if this is the first in a minute.
    pub fn record_call(&mut self, command: &CStr, now_ms: i64) -> Option<String> {
        self.call.begins_at(now_ms).then(|| {
            format!(
                "lock.wake-foreign: the server has refused {}, so a waiter of another library may not be woken",
                command.to_string_lossy()
            )
        })
    }

    /// Records that the server did not replicate a write. Returns the line to log, if this is the first in a minute.
    pub fn record_replication(&mut self, now_ms: i64) -> Option<&'static str> {
        let line = "the server did not replicate a write of this module: replicas and the AOF may differ";
        self.replication.begins_at(now_ms).then_some(line)
    }
}
