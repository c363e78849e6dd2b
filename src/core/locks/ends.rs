//! The ends of waits: each is logged if the wait took long.

use super::Locks;
use super::record::{EntryId, EntryState, QueueEntry, RecordId, WaitingRequest};
use super::types::{Grant, WaiterId};
use crate::core::tables::NEVER;
use crate::core::{EndedWait, OrBug, UnixMs, WaitEnd};

impl Locks {
    /// Removes and returns the claim of the first waiter, to which the lock is now granted. Returns `None` if there is no waiter.
    pub fn grant_first(&mut self, queue: RecordId, end: WaitEnd) -> Option<Grant> {
        let (grant, entry) = self.first_grant(queue)?;
        self.end_wait(entry, end);
        self.remove_entry(entry);
        Some(grant)
    }

    /// Ends the wait of an entry whose client disconnected or gets another reply. The entry is kept until `keep_until`, or dropped
    /// if that is `None`. Returns `None` if no client waits.
    pub fn withdraw(&mut self, id: EntryId, keep_until: Option<UnixMs>, end: WaitEnd) -> Option<WaiterId> {
        let waiter = self.end_wait(id, end)?;
        match keep_until {
            Some(until) => _ = self.set_state(id, EntryState::Detached(until)),
            None => _ = self.remove_entry(id),
        }
        Some(waiter)
    }

    /// Removes the entry of an owner from the queue of a lock. Returns the waiter, which is `None` if the entry was detached. Returns
    /// `None` if the owner had no entry.
    pub fn withdraw_owner(&mut self, db: i32, key: &[u8], owner: &[u8], end: WaitEnd) -> Option<Option<WaiterId>> {
        let entry = self.entry_of(db, key, owner)?;
        let waiter = self.end_wait(entry, end);
        self.remove_entry(entry);
        Some(waiter)
    }

    /// Detaches an entry, if a client waits, and logs the end of that wait. The caller removes the entry or sets its next state.
    pub(super) fn end_wait(&mut self, id: EntryId, end: WaitEnd) -> Option<WaiterId> {
        let request = *self.entries.get(id)?.request()?;
        self.set_state(id, EntryState::Detached(NEVER));
        self.log_end(id, request, 0, end);
        Some(request.waiter)
    }

    /// Logs the end of a wait that a panic has ended. The entry stays in its queue.
    pub fn log_failed(&mut self, id: EntryId, end: WaitEnd) {
        if let Some(&request) = self.entries.get(id).and_then(QueueEntry::request) {
            self.log_end(id, request, 1, end);
        }
    }

    /// Logs the end of the wait of a request of this entry, if it took long. `ending` requests, which are still in the queue, do
    /// not count as others.
    fn log_end(&mut self, entry: EntryId, request: WaitingRequest, ending: usize, end: WaitEnd) {
        let Some(waited_ms) = end.logged_ms(request.since) else { return };
        let Some(entry) = self.entries.get(entry).or_bug("a request that ended had no entry") else { return };
        let Some(record) = self.records.get(entry.record).or_bug("a request that ended had no record") else { return };
        let queue = &record.queue;
        debug_assert!(queue.requests as usize >= ending, "a queue has fewer requests than have ended");
        let others = (queue.requests as usize).saturating_sub(ending);
        let wait =
            EndedWait { db: record.db(), key: &record.key, owner: &entry.claim.owner, kind: entry.claim.kind, others };
        self.slow_log.push(&wait, waited_ms, end);
    }
}
