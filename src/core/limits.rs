//! The bounds of one step of work. No step of one lock is longer, so no lock delays the others.
//!
//! A run of the background work begins no task after [`MAX_TASKS`] tasks or [`MAX_RUN_MS`], and a lock has at most one batch in it.
//! A blocked waiter that is notified costs the server about 20 µs after the run. So an iteration of the event loop has the
//! [`MAX_RUN_MS`], the batch that was begun last, and 7 ms for the blocked waiters of [`MAX_TASKS`] and one batch.

/// The number of queue entries of one lock that are granted it in one step, or found without a subscriber, and of its shares that are
/// rechecked, returned to their sessions, or checked for a lease that has ended by itself.
pub const MAX_BATCH: usize = 100;

/// The number of expired members of a shared lock that are removed or renewed in one step.
pub const MAX_PURGED: usize = 1000;

/// The maximum number of expired members that are recognized. Each read of the lock counts them. Expired members beyond this
/// number count as holders until they are removed.
pub const MAX_EXPIRED: usize = 1000;

/// The number of tasks in one run of the background work. After it the server serves its clients.
pub const MAX_TASKS: usize = 250;

/// The number of tasks that a run may have in any case, however many waits have ended with their connections before it.
pub const MIN_TASKS: usize = 100;

/// The time after which a run begins no other task, in milliseconds.
pub const MAX_RUN_MS: i64 = 4;
