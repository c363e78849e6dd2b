//! Checks of all invariants of the wait queues, for tests. O(N) in the number of entries and requests.

use std::collections::BTreeMap;

use super::record::{QueueEntry, RecordId};
use super::types::QueueEntryId;
use super::{Locks, first_expired_ms};
use crate::core::tables::NEVER;
use crate::core::tables::Slot;
use crate::core::{Cursor, Kind};

impl Locks {
    /// Panics if an index disagrees with what it indexes, or a counter with what it counts.
    pub fn check_invariants(&self) {
        let mut counts: BTreeMap<RecordId, (u32, u32)> = BTreeMap::new();
        let (mut attached, mut shares, mut requests, mut from) = (0, 0, 0, Some(Slot::MIN));
        while let Some((id, entry)) = from.and_then(|from| self.entries.first_from(from)) {
            from = id.next();
            let of_entry = self.check_entry(id, entry);
            let (entries, of_queue) = counts.entry(entry.record).or_default();
            (*entries, *of_queue) = (*entries + 1, *of_queue + of_entry);
            attached += usize::from(of_entry > 0);
            shares += usize::from(entry.claim.kind == Kind::Shared);
            requests += of_entry as usize;
        }
        let sizes = [attached, self.entries.len() - attached, self.entries.len(), shares, requests];
        let indexes = [
            self.order.entry_count(),
            self.detached.entry_count(),
            self.claims.len(),
            self.share_entries,
            self.requests.len(),
        ];
        assert_eq!(indexes, sizes, "attached, detached, claims, shares, requests");
        let mut cursor = Cursor::start();
        let mut queues: Vec<_> = std::iter::from_fn(|| self.records.next(&mut cursor)).collect();
        queues.sort_unstable();
        assert_eq!(queues, counts.keys().copied().collect::<Vec<_>>(), "a queue without entries");
        assert_eq!(self.by_name.len(), queues.len());
        queues.into_iter().for_each(|id| self.check_queue(id, counts[&id]));
    }

    /// Returns the number of requests of the entry.
    fn check_entry(&self, id: QueueEntryId, entry: &QueueEntry) -> u32 {
        let is_attached = entry.latest.is_some();
        assert!(entry.turn.0 < self.next_turn);
        assert_eq!(entry.kept_until == NEVER, is_attached, "only a detached entry is dropped");
        assert_eq!(self.order.of(entry.record).any(|other| other == id), is_attached, "the order of {id:?}");
        let claim = |entry: &QueueEntry| (entry.record, entry.claim.kind, entry.claim.owner.clone());
        let is_same = |other: &QueueEntryId| self.entries.get(*other).is_some_and(|other| claim(other) == claim(entry));
        assert_eq!(self.claims.find(entry.owner_key(), is_same), Some(&id), "the index of claims");
        let mut next = None;
        let mut count = 0;
        for (request_id, request) in self.requests_of(entry) {
            assert_eq!((request.entry, request.next), (id, next), "the list of requests");
            let has_deadline = first_expired_ms(request.deadline) != NEVER;
            assert_eq!(self.deadlines.has(entry.record, first_expired_ms(request.deadline), request_id), has_deadline);
            (next, count) = (Some(request_id), count + 1);
        }
        count
    }

    fn check_queue(&self, id: RecordId, (entries, requests): (u32, u32)) {
        let record = self.records.get(id).unwrap();
        let queue = &record.queue;
        assert_eq!((queue.entries, queue.requests), (entries, requests), "the counters of {id:?}");
        assert_eq!(self.record_of(record.db(), &record.key), Some(id), "the index of queues");
        let has_review = queue.review_at != NEVER;
        assert!(!has_review || requests > 0 && !queue.is_in_backlog, "a review that is not needed");
        assert!(!queue.is_in_backlog || self.backlog.contains(&id), "a queue is missing in the backlog");
        self.deadlines.check_turn(id, queue);
    }
}
