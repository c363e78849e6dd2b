//! Statistics of the contended locks.
//!
//! They are computed by a scan of all queues, because they are needed rarely and waits begin often.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Locks;
use super::queue_order::Position;
use super::record::Record;
use super::types::{Contended, Contention};
use crate::core::OrBug;

impl Locks {
    /// Returns the number of contended locks of all databases, and the time since which the first waiter has waited.
    ///
    /// O(N) in the number of contended locks, whatever the lengths of their queues.
    pub fn contention(&self) -> Contention {
        let mut locks = 0_usize;
        let heads = self.order.heads().inspect(|_| locks = locks.saturating_add(1));
        let first = heads.min_by_key(|head| head.turn);
        let entry = first.and_then(|first| self.entries.at(first.entry).or_bug("a first waiter has no entry"));
        Contention { locks, since: entry.map(|entry| entry.since) }
    }

    /// Returns at most `count` locks of a database with the most requests. Of equal ones, that with the earliest first waiter is
    /// first.
    ///
    /// O(N log `count`) in the number of contended locks, with memory for `count` of them.
    pub fn most_contended(&self, db: i32, count: usize) -> Vec<Contended<'_>> {
        let mut most = BinaryHeap::new();
        for head in self.order.heads() {
            let record = self.records.at(head.queue).or_bug("a waiter has no record");
            let Some(Record { queue, .. }) = record.filter(|record| record.db() == db) else { continue };
            debug_assert!(queue.requests > 0, "a contended lock has no requests");
            // No two turns are equal, so the order is definite.
            let rank = Reverse((queue.requests, Reverse(head.turn), head));
            if most.len() < count {
                most.push(rank);
            } else if let Some(mut least) = most.peek_mut().filter(|least| **least > rank) {
                *least = rank;
            }
        }
        let shown = |Reverse((requests, _, head)): Reverse<(u32, _, Position)>| {
            let (record, entry) = (self.records.at(head.queue)?, self.entries.at(head.entry)?);
            Some(Contended { key: &record.key, requests: requests as usize, since: entry.since })
        };
        most.into_sorted_vec().into_iter().filter_map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Claim, EntryId, JoinRequest, Kind, UnixMs, WaitEnd, WaiterId};

    const NOW: UnixMs = 1_000;

    /// Adds a request of this waiter for a lock, at this time.
    fn join(waiting: &mut Locks, db: i32, key: &str, waiter: u64, now: UnixMs) -> EntryId {
        let claim = Claim { kind: Kind::Mutex, owner: waiter.to_string().as_bytes().into(), lease: None, limit: None };
        let join = JoinRequest { db, key: key.as_bytes(), claim, waiter: WaiterId(waiter), now, deadline: None };
        waiting.join(join, usize::MAX, WaitEnd::UNLOGGED).unwrap().entry
    }

    fn shown(waiting: &Locks, db: i32, count: usize) -> Vec<(String, usize, UnixMs)> {
        let most = waiting.most_contended(db, count).into_iter();
        most.map(|lock| (String::from_utf8_lossy(lock.key).into_owned(), lock.requests, lock.since)).collect()
    }

    #[test]
    fn most_contended_locks_come_first() {
        let mut waiting = Locks::new();
        for (number, key) in (0..).zip(["b", "a", "crowd", "crowd", "c", "crowd"]) {
            join(&mut waiting, 0, key, number, NOW + number as UnixMs);
        }
        let contended = |key: &str, requests, since| (key.to_owned(), requests, since);
        let all = [
            contended("crowd", 3, 1_002),
            contended("b", 1, 1_000),
            contended("a", 1, 1_001),
            contended("c", 1, 1_004),
        ];
        for count in 1..6 {
            assert_eq!(shown(&waiting, 0, count), all[..count.min(4)], "{count}");
        }
        assert_eq!(waiting.contention(), Contention { locks: 4, since: Some(NOW) });
    }

    #[test]
    fn contention_is_counted_by_database() {
        let mut waiting = Locks::new();
        join(&mut waiting, 3, "k", 1, NOW);
        join(&mut waiting, 5, "k", 2, NOW + 1);
        assert_eq!(shown(&waiting, 3, 9), [("k".to_owned(), 1, NOW)]);
        assert_eq!(shown(&waiting, 5, 9), [("k".to_owned(), 1, NOW + 1)]);
        assert_eq!(shown(&waiting, 4, 9), []);
        assert_eq!(waiting.contention().locks, 2);
    }

    #[test]
    fn detached_entries_do_not_count() {
        let mut waiting = Locks::new();
        let [first, second] = [1, 2].map(|waiter| join(&mut waiting, 0, "k", waiter, NOW + waiter as UnixMs));
        waiting.withdraw(first, Some(NOW + 99), WaitEnd::UNLOGGED);
        assert_eq!(shown(&waiting, 0, 9), [("k".to_owned(), 1, NOW + 2)]);
        waiting.withdraw(second, Some(NOW + 99), WaitEnd::UNLOGGED);
        assert!(waiting.record_of(0, b"k").is_some(), "their entries are kept");
        assert_eq!(shown(&waiting, 0, 9), []);
        assert_eq!(waiting.contention(), Contention { locks: 0, since: None });
        join(&mut waiting, 0, "k", 1, NOW + 50);
        assert_eq!(shown(&waiting, 0, 9), [("k".to_owned(), 1, NOW + 1)], "attached at its turn");
    }
}
