//! The ends of waits: each removes requests from their queue, and logs those that waited long.

use super::Locks;
use super::record::{QueueEntry, RecordId};
use super::types::{Grant, QueueEntryId, RequestId, WaiterId, WaitingRequest};
use crate::core::{EndedWait, Kind, OrBug, UnixMs, WaitEnd};

impl Locks {
    /// Removes and returns the claim of the first waiter, to which the lock is now granted. Returns `None` if there is no waiter.
    pub fn grant_first(&mut self, queue: RecordId, end: WaitEnd) -> Option<Grant> {
        let entry = self.first_entry(queue)?;
        let (db, key) = self.lock_of(queue).or_bug("a queue with waiters does not exist")?;
        let waiters = self.remove_requests(entry, end, |id, request| request.granted(id));
        debug_assert!(!waiters.is_empty(), "an attached entry has no requests");
        let QueueEntry { claim, turn, since, .. } = self.remove_entry(entry)?;
        Some(Grant { db, key, claim, longest_lease: None, turn, since, waiters }.with_merged_leases())
    }

    /// Removes a request whose client disconnected or gets another reply, and logs the end of its wait.
    ///
    /// If it was the last request of its entry, the entry is kept until `keep_until`, or dropped if that is `None`. Otherwise the
    /// entry no longer has its lease and its limit, and a review of the lock may be due. Returns `None` if the request does not
    /// wait.
    pub fn withdraw_request(
        &mut self,
        request: RequestId,
        keep_until: Option<UnixMs>,
        end: WaitEnd,
    ) -> Option<WaiterId> {
        let request = self.remove_request(request)?;
        self.log_end(request.entry, request.since, 0, end);
        if self.is_detached(request.entry) {
            match keep_until {
                Some(until) => self.mark_detached(request.entry, until),
                None => _ = self.remove_entry(request.entry),
            }
        } else {
            self.recompute_limit(request.entry, request.limit);
        }
        Some(request.waiter)
    }

    /// Removes the entries of an owner from the queue of a lock, of all kinds but `kept`.
    ///
    /// Returns the waiters that shared them, or `None` if the owner had no such entry.
    pub fn withdraw_owner(
        &mut self,
        db: i32,
        key: &[u8],
        owner: &[u8],
        kept: Option<Kind>,
        end: WaitEnd,
    ) -> Option<Vec<WaiterId>> {
        let mut waiters = None;
        while let Some(entry) = self.any_entry_of(db, key, owner, kept) {
            waiters.get_or_insert_with(Vec::new).extend(self.remove_requests(entry, end, |_, request| request.waiter));
            self.remove_entry(entry);
        }
        waiters
    }

    /// Removes all requests of an entry, and logs the ends of their waits. Returns the results of `of` for them, the latest first.
    fn remove_requests<T>(
        &mut self,
        id: QueueEntryId,
        end: WaitEnd,
        of: impl Fn(RequestId, WaitingRequest) -> T,
    ) -> Vec<T> {
        let ids: Vec<_> = match self.entries.get(id).or_bug("an entry to empty does not exist") {
            Some(entry) => self.requests_of(entry).map(|(id, _)| id).collect(),
            None => Vec::new(),
        };
        let ending = (0..ids.len()).rev();
        let removed = ids.into_iter().zip(ending).filter_map(|(id, ending)| {
            let request = self.remove_request(id)?;
            self.log_end(request.entry, request.since, ending, end);
            Some(of(id, request))
        });
        removed.collect()
    }

    /// Logs the end of a wait that a panic has ended. The request stays in its queue.
    pub fn log_failed(&mut self, request: RequestId, end: WaitEnd) {
        if let Some(WaitingRequest { entry, since, .. }) = self.requests.get(request) {
            self.log_end(*entry, *since, 1, end);
        }
    }

    /// Logs the end of the wait of a request of this entry, if it took long. `ending` requests, which are still in the queue, do
    /// not count as others: their waits end with it.
    fn log_end(&mut self, entry: QueueEntryId, since: UnixMs, ending: usize, end: WaitEnd) {
        let Some(waited_ms) = end.logged_ms(since) else { return };
        let Some(entry) = self.entries.get(entry).or_bug("a request that ended had no entry") else { return };
        let Some(record) = self.records.get(entry.record).or_bug("a request that ended had no record") else { return };
        let queue = &record.queue;
        debug_assert!(queue.requests as usize >= ending, "a queue has fewer requests than its entry");
        let others = (queue.requests as usize).saturating_sub(ending);
        let wait =
            EndedWait { db: record.db(), key: &record.key, owner: &entry.claim.owner, kind: entry.claim.kind, others };
        self.slow_log.push(&wait, waited_ms, end);
    }
}
