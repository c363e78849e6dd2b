//! The slow log: the latest waits that took long, with their ends.

use std::collections::VecDeque;

use super::{Kind, UnixMs};

/// The maximum number of bytes of a key or an owner in an entry, as in the server's SLOWLOG. The rest is cut.
pub const MAX_LOGGED_LEN: usize = 128;

/// The ended waits, the latest last. An entry has a limited size, whatever the length of its key and its owner.
pub struct SlowLog {
    entries: VecDeque<SlowWait>,
    next_id: i64,
}

/// An entry of the log: a request that waited for a lock, and the end of its wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowWait {
    /// The number of the entry. It rises by 1, and [`SlowLog::clear`] does not reset it.
    pub id: i64,
    /// The time of the end.
    pub ended_at: UnixMs,
    /// The time from the request to the end, in milliseconds.
    pub waited_ms: i64,
    pub db: i32,
    /// The key, which may be cut.
    pub key: Box<[u8]>,
    /// The token or owner, which may be cut.
    pub owner: Box<[u8]>,
    pub kind: Kind,
    pub reason: EndReason,
    /// The number of requests that still waited for the lock after the end.
    pub others: usize,
}

/// The reason why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    Granted,
    TimedOut,
    /// RELEASE has withdrawn the request.
    Withdrawn,
    /// A later request of the owner has taken its place.
    Replaced,
    /// This server cannot continue the wait, and a message says so.
    Lost,
    /// The connection has closed, the server has ended the wait, or a message had no subscriber.
    Disconnected,
}

/// The waits that are logged.
#[derive(Clone, Copy, Debug)]
pub struct SlowLogLimits {
    /// The shortest wait that is logged, in milliseconds.
    pub min_wait_ms: i64,
    /// The maximum number of entries. 0 means that nothing is logged.
    pub max_len: usize,
}

/// The end of a wait: the reason and the time.
#[derive(Clone, Copy, Debug)]
pub struct WaitEnd {
    pub reason: EndReason,
    pub now: UnixMs,
    /// The limits of the log at the time of the end.
    pub limits: SlowLogLimits,
}

/// The request of a wait that has ended.
pub struct EndedWait<'w> {
    pub db: i32,
    pub key: &'w [u8],
    pub owner: &'w [u8],
    pub kind: Kind,
    /// The number of requests that still wait for the lock.
    pub others: usize,
}

impl EndReason {
    /// Returns the name of the reason in LOCK.SLOWLOG.
    pub fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::TimedOut => "timeout",
            Self::Withdrawn => "withdrawn",
            Self::Replaced => "replaced",
            Self::Lost => "lost",
            Self::Disconnected => "disconnected",
        }
    }
}

impl WaitEnd {
    /// An end that is not logged, for tests of the queues.
    #[cfg(test)]
    pub const UNLOGGED: Self =
        Self { reason: EndReason::Granted, now: 0, limits: SlowLogLimits { min_wait_ms: 0, max_len: 0 } };

    /// Returns the length of a wait that is to be logged, in milliseconds.
    pub fn logged_ms(&self, since: UnixMs) -> Option<i64> {
        // The server's clock may have been set back.
        let waited_ms = self.now.saturating_sub(since).max(0);
        let SlowLogLimits { min_wait_ms, max_len } = self.limits;
        (waited_ms >= min_wait_ms && max_len > 0).then_some(waited_ms)
    }
}

impl SlowLog {
    pub const fn new() -> Self {
        Self { entries: VecDeque::new(), next_id: 0 }
    }

    /// Adds an entry, and drops the oldest one if the log is full. O(1).
    pub fn push(&mut self, wait: &EndedWait<'_>, waited_ms: i64, end: WaitEnd) {
        let WaitEnd { reason, now, limits } = end;
        debug_assert!(limits.max_len > 0, "the log is off");
        self.truncate(limits.max_len.saturating_sub(1));
        self.entries.push_back(SlowWait {
            id: self.next_id,
            ended_at: now,
            waited_ms,
            db: wait.db,
            key: cut(wait.key),
            owner: cut(wait.owner),
            kind: wait.kind,
            reason,
            others: wait.others,
        });
        debug_assert!(self.next_id < i64::MAX, "the numbers of entries rise");
        self.next_id = self.next_id.saturating_add(1);
    }

    /// Returns the number of waits that were logged since the module was loaded.
    pub fn total(&self) -> u64 {
        self.next_id.unsigned_abs()
    }

    /// Returns the number of entries.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries, the latest first.
    pub fn latest(&self) -> impl Iterator<Item = &SlowWait> {
        self.entries.iter().rev()
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.entries = VecDeque::new();
    }

    /// Drops the oldest entries until at most `max_len` are left.
    pub fn truncate(&mut self, max_len: usize) {
        let excess = self.entry_count().saturating_sub(max_len);
        self.entries.drain(..excess);
        if excess > 1 {
            self.entries.shrink_to_fit(); // The maximum was lowered.
        }
    }
}

/// Returns a copy of the bytes, in which the server's words for the rest follow the first [`MAX_LOGGED_LEN`] bytes.
fn cut(bytes: &[u8]) -> Box<[u8]> {
    match bytes.split_at_checked(MAX_LOGGED_LEN) {
        Some((start, rest)) if !rest.is_empty() => {
            [start, format!("... ({} more bytes)", rest.len()).as_bytes()].concat().into()
        }
        _ => bytes.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: UnixMs = 50_000;

    fn end(min_wait_ms: i64, max_len: usize) -> WaitEnd {
        let limits = SlowLogLimits { min_wait_ms, max_len };
        WaitEnd { reason: EndReason::Granted, now: NOW, limits }
    }

    fn push(log: &mut SlowLog, key: &[u8], max_len: usize) {
        let wait = EndedWait { db: 3, key, owner: b"t", kind: Kind::Shared, others: 7 };
        log.push(&wait, 5, end(0, max_len));
    }

    fn ids(log: &SlowLog) -> Vec<i64> {
        log.latest().map(|entry| entry.id).collect()
    }

    #[test]
    fn wait_is_logged_from_minimum() {
        assert_eq!(end(100, 1).logged_ms(NOW - 99), None);
        assert_eq!(end(100, 1).logged_ms(NOW - 100), Some(100));
        assert_eq!(end(0, 1).logged_ms(NOW), Some(0));
        assert_eq!(end(0, 0).logged_ms(NOW - 100), None, "the log is off");
        assert_eq!(end(0, 1).logged_ms(NOW + 100), Some(0), "the clock was set back");
    }

    #[test]
    fn entry_has_all_facts() {
        let mut log = SlowLog::new();
        push(&mut log, b"k", 9);
        let (key, owner) = (b"k".as_slice().into(), b"t".as_slice().into());
        let (kind, reason) = (Kind::Shared, EndReason::Granted);
        let entry = SlowWait { id: 0, ended_at: NOW, waited_ms: 5, db: 3, key, owner, kind, reason, others: 7 };
        assert_eq!(log.latest().collect::<Vec<_>>(), [&entry]);
    }

    #[test]
    fn full_log_drops_oldest() {
        let mut log = SlowLog::new();
        (0..5).for_each(|_| push(&mut log, b"k", 3));
        assert_eq!(ids(&log), [4, 3, 2]);
        push(&mut log, b"k", 1);
        assert_eq!(ids(&log), [5], "the maximum was lowered");
        log.truncate(0);
        assert_eq!(log.entry_count(), 0);
    }

    #[test]
    fn ids_go_on_after_clear() {
        let mut log = SlowLog::new();
        push(&mut log, b"k", 3);
        log.clear();
        assert_eq!((log.entry_count(), ids(&log)), (0, vec![]));
        push(&mut log, b"k", 3);
        assert_eq!(ids(&log), [1]);
    }

    #[test]
    fn long_key_is_cut_as_in_slowlog() {
        assert_eq!(*cut(&[b'k'; 128]), [b'k'; 128]);
        assert_eq!(*cut(&[b'k'; 129]), *[&[b'k'; 128], b"... (1 more bytes)".as_slice()].concat());
        assert_eq!(*cut(b""), *b"");
    }

    proptest! {
        #[test]
        fn log_keeps_latest_entries(lens in proptest::collection::vec(1_usize..6, 0..40)) {
            let (mut log, mut expected) = (SlowLog::new(), Vec::new());
            for (id, len) in (0..).zip(lens) {
                push(&mut log, b"k", len);
                expected.insert(0, id);
                expected.truncate(len);
            }
            prop_assert_eq!(ids(&log), expected);
        }
    }
}
