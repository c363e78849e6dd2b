//! The pure lock logic: the holder, the waiters, the next waiter, and the writes.
//!
//! Nothing here reads a clock, calls the server or does I/O. A function takes the state of a lock, the time and a request, and
//! returns a decision, which the host layer carries out. So the logic is tested against a naive model in milliseconds.

#![forbid(unsafe_code)]
#![expect(clippy::new_without_default, reason = "a value of a static needs a const function")]

mod admission;
mod back_off;
mod bugs;
mod burst;
mod compat;
mod error;
mod fence;
mod integer;
pub mod limits;
mod lock;
mod locks;
mod overdue;
mod recovery;
mod replica_watch;
mod slow_log;
mod stall;
mod stats;
pub mod steps;
mod tables;

pub use admission::{Action, Facts, Request, Verdict, admit};
pub use back_off::{BackOff, MAX_RETRY_MS, RETRY_MS};
pub use bugs::{BugReport, OrBug, bug, bug_count, check, take_bug_report};
pub use burst::Burst;
pub use compat::{redisson_channel_of, signal_list_of};
pub use error::Error;
pub use fence::{FENCING_TOKEN_LIMIT, next_fencing_token};
pub use integer::{format_integer, parse_integer};
pub use lock::{
    BlockTimeout, Decision, HoldNumber, Holder, Kind, LATEST_SHARE_END, Lease, LeaseEnd, Limit, Lock, SessionTerms,
    Shares, Write, acquire, extend, reenter, release, share,
};
pub use locks::{
    Claim, Contended, Contention, DeliveryId, EntryId, Grant, Handles, Hold, HoldId, HoldKey, JoinOutcome, JoinRequest,
    Locks, MIN_SESSION_LEASE_MS, NewSession, RecordId, Revocation, ShareBatch, Task, Turn, Waiter, WaiterId,
};
#[cfg(feature = "simulated")]
pub use locks::{EntryView, HoldView, LockView, Session, SessionLeaseEnd};
pub use overdue::{Form, Overdue, overdue};
pub use recovery::{Recovery, SuspensionChange};
pub use replica_watch::{DEFAULT_LAG_S, REPLICA_CHECK_MS, ReplicaWatch};
pub use slow_log::{EndReason, EndedWait, MAX_LOGGED_LEN, SlowLog, SlowLogLimits, SlowWait, WaitEnd};
pub use stall::{MIN_SUSPENSION_MS, StallDetector, TICK_MS};
pub use stats::{Cause, Stats, WAIT_BUCKETS_MS, increment};
pub use tables::{Arena, Connections, Cursor, Id, NameMap};

/// A time on the server's wall clock, in milliseconds since the Unix epoch, as Redis stores expiry times.
pub type UnixMs = i64;

/// The server's number for a connection, as shown by `CLIENT ID`.
pub type ClientId = i64;

/// The maximum length of a token or owner, in bytes. The minimum is 1.
pub const MAX_IDENTITY_LEN: usize = 1024;

/// The maximum length of a channel, in bytes. The minimum is 1.
pub const MAX_CHANNEL_LEN: usize = 1024;

/// The maximum number of locks that LOCK.QUEUES lists.
pub const MAX_QUEUES_SHOWN: usize = 1000;

/// The maximum number of requests that LOCK.WAITERS lists.
pub const MAX_WAITERS_SHOWN: usize = 1000;

/// The longest lease or wait, in milliseconds (146 million years).
///
/// It is half the range of an `i64`, so that the sum of it and any clock reading does not overflow.
pub const MAX_DURATION_MS: i64 = i64::MAX / 2;
