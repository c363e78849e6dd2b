//! The lock itself, without a server: who holds it, who waits, who is next, and what has to be written.
//!
//! Nothing here reads a clock, calls the server or does I/O. A function takes the state of a lock, the time and a
//! request, and returns a decision, which the host layer carries out. So these rules are tested against a naive model
//! in milliseconds.

#![forbid(unsafe_code)]
#![allow(clippy::new_without_default, reason = "what is made in a static needs a const function")]

mod arena;
mod back_off;
mod connections;
mod contact;
mod episode;
mod error;
mod fence;
mod foreign;
mod handle_table;
mod incremental_table;
mod integer;
mod lock;
mod lock_index;
mod name_map;
mod recovery;
mod remains;
mod revocations;
mod round;
mod sessions;
mod slab;
mod stall;
mod stats;
pub mod steps;
mod timer_queue;
mod waiting;

pub use arena::{Arena, Cursor, Id};
pub use back_off::{BackOff, MAX_RETRY_MS, RETRY_MS};
pub use connections::Connections;
pub use contact::{Contact, DEFAULT_LAG_S, LOOK_MS};
pub use episode::Episode;
pub use error::Error;
pub use fence::{FENCING_TOKEN_LIMIT, next_fencing_token};
pub use foreign::{redisson_channel_of, signal_list_of};
pub use integer::{format_integer, parse_integer};
pub use lock::{
    Decision, HoldNumber, Holder, Kind, LATEST_SHARE_END, Lease, LeaseEnd, Limit, Lock, Shares, Write, acquire, extend,
    reenter, release, share,
};
pub use lock_index::{LockIndex, Seat};
pub use name_map::NameMap;
pub use recovery::{Change as RecoveryChange, Recovery};
pub use remains::Remains;
pub use revocations::{Revocation, RevocationId, Revocations};
pub use round::Round;
pub use sessions::{
    MIN_SESSION_LEASE_MS, MOST_SHARES_AT_ONCE, Session, SessionId, SessionLock, SessionTask, Sessions, ShareStretch,
};
pub use stall::{HOLD_OFF_MS, StallDetector, TICK_MS};
pub use stats::{Cause, Stats, WAIT_BUCKETS_MS, increment};
pub use waiting::{
    Claim, Contended, Contention, Due, DueFilter, Grant, GrantedRequest, Join, Joined, QueueId, RequestId, Turn,
    WaitQueues, Waiter, WaiterId,
};

/// A point in time on the server's wall clock, in milliseconds since the Unix epoch. Redis stores expiry times in this
/// unit.
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
/// This is half the range of an `i64`, so adding it to any clock reading cannot overflow.
pub const MAX_DURATION_MS: i64 = i64::MAX / 2;
