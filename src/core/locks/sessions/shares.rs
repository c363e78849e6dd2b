//! The sessions of all shares of one lock, which are rechecked and returned in batches.

use std::mem;

use crate::core::locks::Locks;
use crate::core::locks::record::{HoldId, RecordId, Scan, ShareState};
use crate::core::locks::tasks::{Task, Work};
use crate::core::tables::{AT_ONCE, NEVER, is_resting};
use crate::core::{Cause, OrBug, UnixMs};

/// The next shares of a scan.
pub struct ShareBatch {
    pub tokens: Vec<Box<[u8]>>,
    /// The next token after them, or `None` at the end of the scan.
    pub next: Option<Box<[u8]>>,
}

impl ShareState {
    /// Returns when the return continues.
    pub(in crate::core::locks) fn return_due(&self) -> UnixMs {
        if matches!(self, Self::Return { is_queued: true, .. }) { AT_ONCE } else { NEVER }
    }

    fn scan_mut(&mut self) -> Option<&mut Scan> {
        match self {
            Self::Stable => None,
            Self::Recheck(scan) | Self::Return { scan, .. } => Some(scan),
        }
    }
}

impl Locks {
    pub fn has_shares(&self, record: RecordId) -> bool {
        self.shares_of(record).is_some_and(|shares| !shares.in_session.is_empty())
    }

    fn sessions_from(&self, record: RecordId, token: &[u8]) -> impl Iterator<Item = (&[u8], HoldId)> {
        self.shares_of(record).map(|shares| shares.sessions_from(token)).into_iter().flatten()
    }

    /// Returns the shares of a lock that have sessions.
    pub fn shares(&self, record: RecordId) -> impl Iterator<Item = HoldId> {
        self.sessions_from(record, &[]).map(|(_, id)| id)
    }

    /// Ends the sessions of all shares of a lock. A task removes each of them.
    pub fn end_shares(&mut self, record: RecordId) {
        self.set_share_state(record, ShareState::Stable);
        if let Some(ended) = self.take_sessions(record) {
            debug_assert!(self.sessions >= ended.len(), "more sessions end than were counted");
            self.sessions = self.sessions.saturating_sub(ended.len());
            if ended.len() > 0 {
                self.ended.push_back(ended);
            }
        }
    }

    fn share_state(&self, record: RecordId) -> &ShareState {
        self.shares_of(record).map_or(&ShareState::Stable, |shares| &shares.state)
    }

    fn share_state_mut(&mut self, record: RecordId) -> Option<&mut ShareState> {
        self.shares_mut(record).map(|shares| &mut shares.state)
    }

    /// Sets the state of the shares of a lock, and what is due for them. The end of a return may leave capacity for a waiter.
    fn set_share_state(&mut self, record: RecordId, state: ShareState) {
        let (is_recheck, due) = (matches!(state, ShareState::Recheck(_)), state.return_due());
        if self.is_returning(record) && !matches!(state, ShareState::Return { .. }) {
            self.review_soon(record, Cause::Other);
        }
        let Some(before) = self.share_state_mut(record) else { return };
        let was_due = mem::replace(before, state).return_due();
        _ = if is_recheck { self.rechecks.insert(record) } else { self.rechecks.remove(&record) };
        self.reschedule(record, Work::Return, was_due, due);
    }

    /// Returns a lock whose shares need a recheck and are not being returned, unless it has had a batch in this run.
    pub(in crate::core::locks) fn next_recheck(&self) -> Option<RecordId> {
        let first = self.rechecks.first().copied()?;
        self.records.get(first).is_none_or(|record| !is_resting(record.work_place)).then_some(first)
    }

    /// Records that external writes may have removed shares or set the expiry time. A recheck begins, if need be after a scan.
    pub fn mark_for_recheck(&mut self, record: RecordId) {
        if let Some(scan) = self.share_state_mut(record).and_then(ShareState::scan_mut) {
            scan.is_outdated = true;
        } else if self.has_shares(record) {
            self.set_share_state(record, ShareState::Recheck(Scan::default()));
        }
    }

    /// Returns whether external writes may have removed shares of a lock.
    pub fn needs_recheck(&self, record: RecordId) -> bool {
        match self.share_state(record) {
            ShareState::Stable => false,
            ShareState::Recheck(_) => true,
            ShareState::Return { scan, .. } => scan.is_outdated,
        }
    }

    /// Returns the next shares of a lock to recheck, or `None` if they need no recheck or are being returned.
    pub fn next_to_recheck(&mut self, record: RecordId) -> Option<ShareBatch> {
        let ShareState::Recheck(scan) = self.share_state(record) else { return None };
        let batch = self.batch_from(record, &scan.from);
        self.advance(record, batch.next.as_deref());
        Some(batch)
    }

    /// Begins to return the shares of a lock to their sessions. Until [`next_to_return`](Self::next_to_return) has returned all
    /// of them, the renewal of one of them is due in turn with other locks. A recheck that is needed follows.
    pub fn begin_return(&mut self, record: RecordId) {
        let scan = Scan { from: Box::default(), is_outdated: self.needs_recheck(record) };
        self.set_share_state(record, ShareState::Return { scan, is_queued: true });
    }

    /// Schedules the renewal with which a lock continues to return its shares, if it is not scheduled.
    pub fn return_in_turn(&mut self, record: RecordId) {
        self.queue_return(record, true);
    }

    fn queue_return(&mut self, record: RecordId, to: bool) {
        if let Some(ShareState::Return { is_queued, .. }) = self.share_state_mut(record) {
            let [before, after] =
                [mem::replace(is_queued, to), to].map(|is_queued| if is_queued { AT_ONCE } else { NEVER });
            self.reschedule(record, Work::Return, before, after);
        }
    }

    /// Takes the renewal with which a lock continues to return its shares.
    pub(in crate::core::locks) fn take_return(&mut self, record: RecordId) -> Option<Task> {
        self.queue_return(record, false);
        let next = self.next_to_renew(record).or_bug("shares are being returned, and none is left");
        if next.is_none() {
            self.advance(record, None); // All waiters would wait forever.
        }
        next.map(Task::Renew)
    }

    /// Returns the session of the next share to return, if the shares of the lock are being returned.
    fn next_to_renew(&self, record: RecordId) -> Option<HoldId> {
        let ShareState::Return { scan, .. } = self.share_state(record) else { return None };
        self.sessions_from(record, &scan.from).next().map(|(_, id)| id)
    }

    /// Returns whether the shares of a lock are being returned to their sessions.
    pub fn is_returning(&self, record: RecordId) -> bool {
        matches!(self.share_state(record), ShareState::Return { .. })
    }

    /// Returns whether shares of a lock are still to be returned, to their sessions or for their grace periods.
    pub fn has_shares_to_return(&self, record: RecordId) -> bool {
        self.is_returning(record) || self.shares_of(record).is_some_and(|shares| shares.to_return > 0)
    }

    /// Returns whether a share has not been returned to its session yet.
    pub fn is_to_return(&self, record: RecordId, share: Option<&[u8]>) -> bool {
        match self.share_state(record) {
            ShareState::Return { scan, .. } => share.is_some_and(|token| *token >= *scan.from),
            ShareState::Stable | ShareState::Recheck(_) => false,
        }
    }

    /// Returns the next shares of a lock to return to their sessions, or `None` if they are not being returned.
    pub fn next_to_return(&mut self, record: RecordId) -> Option<ShareBatch> {
        let ShareState::Return { scan, .. } = self.share_state(record) else { return None };
        let batch = self.batch_from(record, &scan.from);
        self.advance(record, batch.next.as_deref());
        self.return_in_turn(record);
        Some(batch)
    }

    /// Returns the next shares of a lock from a token on.
    fn batch_from(&self, record: RecordId, from: &[u8]) -> ShareBatch {
        let rest = self.sessions_from(record, from).take(self.batch.saturating_add(1));
        let mut tokens: Vec<Box<[u8]>> = rest.map(|(token, _)| Box::from(token)).collect();
        let next = if tokens.len() > self.batch { tokens.pop() } else { None };
        debug_assert!(next.as_deref().is_none_or(|next| next > from), "the tokens of a scan rise");
        ShareBatch { tokens, next }
    }

    /// Advances the scan of a lock to the token `next`. At the end, begins a recheck if the scan is outdated.
    fn advance(&mut self, record: RecordId, next: Option<&[u8]>) {
        match (self.share_state_mut(record).and_then(ShareState::scan_mut), next) {
            (Some(scan), Some(next)) => scan.from = next.into(),
            (Some(Scan { is_outdated: true, .. }), None) => {
                self.set_share_state(record, ShareState::Recheck(Scan::default()));
            }
            _ => self.set_share_state(record, ShareState::Stable),
        }
    }

    /// Continues a return or a recheck after a session has been removed, with which it may have been to continue.
    pub(super) fn continue_without_one(&mut self, record: RecordId) {
        if !self.has_shares(record) {
            self.set_share_state(record, ShareState::Stable);
        } else if self.next_to_renew(record).is_some() {
            self.return_in_turn(record);
        } else if self.is_returning(record) {
            self.advance(record, None);
        }
    }

    /// Schedules the immediate renewal of one share of a lock.
    pub fn renew_one_share(&mut self, record: RecordId) {
        let one = self.shares(record).next();
        one.into_iter().for_each(|one| self.renew_soon(one));
    }

    /// Returns whether holds that have ended are left to be removed.
    pub(in crate::core::locks) fn is_forgetting(&self) -> bool {
        !self.ended.is_empty() || self.purge.has_more()
    }

    /// Removes one hold that has ended together with others. Returns `false` if there is none.
    pub(in crate::core::locks) fn forget_ended(&mut self) -> bool {
        if let Some(of_lock) = self.ended.front_mut() {
            match of_lock.next() {
                Some(id) => self.remove_hold(id),
                None => _ = self.ended.pop_front(),
            }
            return true;
        }
        let dropped = self.purge.next(&self.holds);
        if let Some(id) = dropped.filter(|id| !self.is_current(*id)) {
            self.remove_hold(id);
        }
        dropped.is_some()
    }
}

#[cfg(test)]
mod tests;
