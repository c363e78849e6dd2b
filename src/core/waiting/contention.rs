//! Which locks are waited for, by how many, and for how long.
//!
//! Nothing is kept for this: to ask is rare, to wait is not. So each question goes through the lines once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::WaitQueues;
use super::queue_order::Position;
use super::types::{Contended, Contention};

impl WaitQueues {
    /// Returns how many locks are waited for, over all databases, and since when.
    ///
    /// O(N) in the number of locks that are waited for, however many wait for each.
    pub fn contention(&self) -> Contention {
        let mut locks = 0_usize;
        let heads = self.order.heads().inspect(|_| locks = locks.saturating_add(1));
        let first = heads.min_by_key(|head| head.turn);
        Contention { locks, since: first.and_then(|first| self.entries.get(first.entry)).map(|entry| entry.since) }
    }

    /// Returns the locks of a database that most requests wait for, most first: `count` of them, or all if there are
    /// fewer. Of locks that as many wait for, the one comes first whose first in line came first.
    ///
    /// O(N log `count`) in the number of locks that are waited for, with memory for `count` of them.
    pub fn most_contended(&self, db: i32, count: usize) -> Vec<Contended<'_>> {
        let mut most = BinaryHeap::new();
        for head in self.order.heads() {
            let Some(queue) = self.queues.at(head.queue).filter(|queue| queue.db == db) else { continue };
            // Turns differ, so the order is the same each time.
            let rank = Reverse((queue.requests, Reverse(head.turn), head));
            if most.len() < count {
                most.push(rank);
            } else if let Some(mut least) = most.peek_mut().filter(|least| **least > rank) {
                *least = rank;
            }
        }
        let shown = |Reverse((requests, _, head)): Reverse<(u32, _, Position)>| {
            let (queue, entry) = (self.queues.at(head.queue)?, self.entries.get(head.entry)?);
            Some(Contended { key: &queue.key, requests: requests as usize, since: entry.since })
        };
        most.into_sorted_vec().into_iter().filter_map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Claim, JoinRequest, Kind, RequestId, UnixMs, WaiterId};

    const NOW: UnixMs = 1_000;

    /// Lets somebody wait for a lock from this time on.
    fn join(waiting: &mut WaitQueues, db: i32, key: &str, who: u64, now: UnixMs) -> RequestId {
        let claim = Claim { kind: Kind::Mutex, owner: who.to_string().as_bytes().into(), lease: None, limit: None };
        let join = JoinRequest { db, key: key.as_bytes(), claim, waiter: WaiterId(who), now, deadline: None };
        waiting.join(join, usize::MAX).unwrap().request
    }

    fn shown(waiting: &WaitQueues, db: i32, count: usize) -> Vec<(String, usize, UnixMs)> {
        let most = waiting.most_contended(db, count).into_iter();
        most.map(|lock| (String::from_utf8_lossy(lock.key).into_owned(), lock.requests, lock.since)).collect()
    }

    #[test]
    fn most_contended_locks_come_first() {
        let mut waiting = WaitQueues::new();
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
    fn each_database_has_its_own() {
        let mut waiting = WaitQueues::new();
        join(&mut waiting, 3, "k", 1, NOW);
        join(&mut waiting, 5, "k", 2, NOW + 1);
        assert_eq!(shown(&waiting, 3, 9), [("k".to_owned(), 1, NOW)]);
        assert_eq!(shown(&waiting, 5, 9), [("k".to_owned(), 1, NOW + 1)]);
        assert_eq!(shown(&waiting, 4, 9), []);
        assert_eq!(waiting.contention().locks, 2);
    }

    #[test]
    fn detached_entries_do_not_count() {
        let mut waiting = WaitQueues::new();
        let [first, second] = [1, 2].map(|who| join(&mut waiting, 0, "k", who, NOW + who as UnixMs));
        waiting.withdraw_request(first, Some(NOW + 99));
        assert_eq!(shown(&waiting, 0, 9), [("k".to_owned(), 1, NOW + 2)]);
        waiting.withdraw_request(second, Some(NOW + 99));
        assert!(waiting.queue_of(0, b"k").is_some(), "their places are kept");
        assert_eq!(shown(&waiting, 0, 9), []);
        assert_eq!(waiting.contention(), Contention { locks: 0, since: None });
        join(&mut waiting, 0, "k", 1, NOW + 50);
        assert_eq!(shown(&waiting, 0, 9), [("k".to_owned(), 1, NOW + 1)], "back in its turn");
    }

    #[test]
    fn copies_of_a_request_count_each() {
        let mut waiting = WaitQueues::new();
        for now in [NOW, NOW + 5] {
            join(&mut waiting, 0, "k", 1, now);
        }
        assert_eq!(shown(&waiting, 0, 9), [("k".to_owned(), 2, NOW)]);
    }
}
