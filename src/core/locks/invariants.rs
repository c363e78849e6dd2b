//! Checks of all invariants of the queues, for tests. O(N) in the number of entries.

use std::collections::BTreeMap;

use super::record::{EntryId, EntryState, QueueEntry, RecordId};
use super::tasks::Work;
use super::{Locks, first_expired_ms};
use crate::core::tables::{AT_ONCE, NEVER, Slot};
use crate::core::{Cursor, Kind};

impl Locks {
    /// Panics if an index disagrees with what it indexes, or a counter with what it counts.
    pub fn check_invariants(&self) {
        let mut counts: BTreeMap<RecordId, (u32, u32)> = BTreeMap::new();
        let (mut attached, mut shares, mut cursor) = (0, 0, Cursor::start());
        while let Some(id) = self.entries.next(&mut cursor) {
            let entry = self.entries.get(id).unwrap();
            self.check_entry(id, entry);
            let (entries, requests) = counts.entry(entry.record).or_default();
            let waits = u32::from(entry.request().is_some());
            (*entries, *requests) = (*entries + 1, *requests + waits);
            attached += waits as usize;
            shares += usize::from(entry.claim.kind == Kind::Shared);
        }
        let sizes = [attached, self.entries.len() - attached, self.entries.len(), shares];
        let indexes = [self.order.len(), self.detached.entry_count(), self.owners.len(), self.share_entries];
        assert_eq!(indexes, sizes, "attached, detached, owners, shares");
        let mut cursor = Cursor::start();
        let queues: Vec<_> =
            std::iter::from_fn(|| self.records.next(&mut cursor)).filter(|&id| self.has_queue(id)).collect();
        assert_eq!(queues.len(), counts.len(), "a queue without entries");
        queues.into_iter().for_each(|id| self.check_queue(id, counts[&id]));
        assert_eq!(self.by_name.len(), self.records.len());
    }

    fn check_entry(&self, id: EntryId, entry: &QueueEntry) {
        assert!(entry.turn.0 < self.next_turn);
        let is_in_order = self.order.of(entry.record).any(|slot| slot == id.slot());
        let is_own = |slot: &Slot| *slot == id.slot();
        assert!(self.owners.find(entry.owner_key(), is_own).is_some(), "the index of owners");
        match entry.state {
            EntryState::Attached(request) => {
                let deadline = first_expired_ms(request.deadline);
                assert!(is_in_order, "{id:?} waits, and is not in the order");
                assert_eq!(self.deadlines.has(entry.record.slot(), deadline, id.slot()), deadline != NEVER);
            }
            EntryState::Detached(until) => assert!(!is_in_order && until != NEVER, "a detached entry is in the order"),
        }
    }

    fn check_queue(&self, id: RecordId, (entries, requests): (u32, u32)) {
        let record = self.records.get(id).unwrap();
        let queue = &record.queue;
        assert_eq!((queue.entries, queue.requests), (entries, requests), "the counters of {id:?}");
        assert_eq!(self.record_of(record.db(), &record.key), Some(id), "the index of queues");
        let has_review = queue.review_at != NEVER;
        assert!(!has_review || requests > 0, "a review that is not needed");
        assert!(!queue.continues_review || queue.review_at == AT_ONCE, "a review that continues is immediate");
        assert!(
            !has_review || self.work.has(id.slot(), queue.review_at, Work::Review),
            "a review is not on the agenda"
        );
        self.work.check_place(id.slot(), record.work_place);
        self.deadlines.check_place(id.slot(), queue.time_out_place);
    }
}
