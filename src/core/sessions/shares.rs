//! The sessions of all shares of one lock, which are rechecked and returned in batches.

use std::mem;
use std::rc::Rc;

use super::{SessionId, SessionTask, Sessions};
use crate::core::{HoldKey, OrBug, UnixMs};

/// The number of shares of one lock that are processed in one step.
pub const MAX_SHARE_BATCH: usize = 100;

/// The sessions of all shares of one lock.
#[derive(Default)]
pub struct ShareSessions {
    /// The number of pairs of a session and a connection.
    pub pairs: usize,
    state: ShareState,
}

/// The state of the sessions of all shares of one lock:
///
/// ```text
/// Stable ──► Recheck ──► Stable
///   └───────────┴──────► Return ──► Stable, or Recheck if the scan is outdated
/// ```
#[derive(Default)]
enum ShareState {
    /// The sessions have the shares in the key.
    #[default]
    Stable,
    /// External writes may have removed shares. The scan ends the sessions of those.
    Recheck(Scan),
    /// The scan returns the shares to their sessions. The lock is queued, or the renewal of its next share continues the scan.
    Return { scan: Scan, is_queued: bool },
}

/// A scan over the shares of a lock, in the order of their tokens.
#[derive(Default)]
struct Scan {
    /// A token that is not after the next token of the scan.
    from: Box<[u8]>,
    /// Whether external writes may have removed shares since the scan began. Then a recheck follows.
    is_outdated: bool,
}

/// The next shares of a scan.
pub struct ShareBatch {
    pub tokens: Vec<Box<[u8]>>,
    /// The next token after them, or `None` at the end of the scan.
    pub next: Option<Box<[u8]>>,
}

impl ShareState {
    fn scan_mut(&mut self) -> Option<&mut Scan> {
        match self {
            Self::Stable => None,
            Self::Recheck(scan) | Self::Return { scan, .. } => Some(scan),
        }
    }
}

impl Sessions {
    pub fn has_shares(&self, db: i32, key: &[u8]) -> bool {
        self.by_lock.has_shares(db, key)
    }

    pub fn shares(&self, db: i32, key: &[u8]) -> impl Iterator<Item = SessionId> {
        self.by_lock.shares(db, key)
    }

    /// Ends the sessions of all shares of a lock. [`forget_ended`](Self::forget_ended) removes them one by one.
    pub fn end_shares(&mut self, db: i32, key: &[u8]) {
        if let Some((sessions, ShareSessions { pairs, .. })) = self.by_lock.take_shares(db, key) {
            self.rechecks.remove(&(db, key.into()));
            self.subtract_pairs(db, key, pairs);
            self.ended.push_back(sessions);
        }
    }

    fn share_state(&self, db: i32, key: &[u8]) -> &ShareState {
        self.by_lock.common(db, key).map_or(&ShareState::Stable, |shares| &shares.state)
    }

    fn set_share_state(&mut self, db: i32, key: &[u8], state: ShareState) {
        let Some(shares) = self.by_lock.common_mut(db, key) else { return };
        let lock = (db, key.into());
        _ = if let ShareState::Recheck(_) = state { self.rechecks.insert(lock) } else { self.rechecks.remove(&lock) };
        shares.state = state;
    }

    /// Records that external writes may have removed shares or set the expiry time. A recheck begins, if need be after a scan.
    pub fn mark_for_recheck(&mut self, db: i32, key: &[u8]) {
        match self.by_lock.common_mut(db, key).and_then(|shares| shares.state.scan_mut()) {
            Some(scan) => scan.is_outdated = true,
            None => self.set_share_state(db, key, ShareState::Recheck(Scan::default())),
        }
    }

    /// Returns whether external writes may have removed shares of a lock.
    pub fn needs_recheck(&self, db: i32, key: &[u8]) -> bool {
        match self.share_state(db, key) {
            ShareState::Stable => false,
            ShareState::Recheck(_) => true,
            ShareState::Return { scan, .. } => scan.is_outdated,
        }
    }

    /// Returns a lock whose shares need a recheck and are not being returned.
    pub fn first_to_recheck(&self) -> Option<(i32, Rc<[u8]>)> {
        self.rechecks.first().cloned()
    }

    /// Returns the next shares of a lock to recheck, or `None` if they need no recheck or are being returned.
    pub fn next_to_recheck(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let ShareState::Recheck(scan) = self.share_state(db, key) else { return None };
        let batch = self.batch_from(db, key, &scan.from);
        self.advance(db, key, batch.next.as_deref());
        Some(batch)
    }

    /// Begins to return the shares of a lock to their sessions. Until [`next_to_return`](Self::next_to_return) has returned all
    /// of them, the renewal of one of them is due in turn with other locks. A recheck that is needed follows.
    pub fn begin_return(&mut self, db: i32, key: &[u8]) {
        let scan = Scan { from: Box::default(), is_outdated: self.needs_recheck(db, key) };
        self.set_share_state(db, key, ShareState::Return { scan, is_queued: false });
        self.return_in_turn(db, key);
    }

    /// Schedules the renewal with which a lock continues to return its shares, if it is not scheduled.
    pub fn return_in_turn(&mut self, db: i32, key: &[u8]) {
        if let Some(ShareState::Return { is_queued, .. }) = self.by_lock.common_mut(db, key).map(|it| &mut it.state) {
            if !mem::replace(is_queued, true) {
                self.returns.push_back((db, key.into()));
            }
        }
    }

    /// Removes and returns the renewal with which the next lock continues to return its shares.
    pub(super) fn pop_return(&mut self) -> Option<SessionTask> {
        while let Some((db, key)) = self.returns.pop_front() {
            let state = self.by_lock.common_mut(db, &key).map(|shares| &mut shares.state);
            let Some(ShareState::Return { is_queued: is_queued @ true, .. }) = state else { continue };
            *is_queued = false;
            let next = self.next_to_renew(db, &key);
            if next.is_some() {
                return next.map(SessionTask::Renew);
            }
        }
        None
    }

    /// Returns the session of the next share to return, if the shares of the lock are being returned.
    fn next_to_renew(&self, db: i32, key: &[u8]) -> Option<SessionId> {
        let ShareState::Return { scan, .. } = self.share_state(db, key) else { return None };
        let token = self.by_lock.tokens_from(db, key, &scan.from).next()?;
        self.find(HoldKey { db, key, share: Some(token) }).or_bug("a share in the index has no session")
    }

    /// Returns whether the shares of a lock are being returned to their sessions.
    pub fn is_returning(&self, db: i32, key: &[u8]) -> bool {
        matches!(self.share_state(db, key), ShareState::Return { .. })
    }

    /// Returns whether a share has not been returned to its session yet.
    pub fn is_to_return(&self, HoldKey { db, key, share }: HoldKey<'_>) -> bool {
        match self.share_state(db, key) {
            ShareState::Return { scan, .. } => share.is_some_and(|token| *token >= *scan.from),
            ShareState::Stable | ShareState::Recheck(_) => false,
        }
    }

    /// Returns an upper bound of the number of shares of a lock that have not been returned to their sessions yet.
    pub fn to_return(&self, db: i32, key: &[u8]) -> usize {
        if self.is_returning(db, key) { self.by_lock.share_count(db, key) } else { 0 }
    }

    /// Returns the next shares of a lock to return to their sessions, or `None` if they are not being returned.
    pub fn next_to_return(&mut self, db: i32, key: &[u8]) -> Option<ShareBatch> {
        let ShareState::Return { scan, .. } = self.share_state(db, key) else { return None };
        let batch = self.batch_from(db, key, &scan.from);
        self.advance(db, key, batch.next.as_deref());
        self.return_in_turn(db, key);
        Some(batch)
    }

    /// Returns the next shares of a lock from a token on.
    fn batch_from(&self, db: i32, key: &[u8], from: &[u8]) -> ShareBatch {
        let rest = self.by_lock.tokens_from(db, key, from).take(MAX_SHARE_BATCH.saturating_add(1));
        let mut tokens: Vec<Box<[u8]>> = rest.map(Box::from).collect();
        let next = if tokens.len() > MAX_SHARE_BATCH { tokens.pop() } else { None };
        debug_assert!(next.as_deref().is_none_or(|next| next > from), "the tokens of a scan rise");
        ShareBatch { tokens, next }
    }

    /// Advances the scan of a lock to the token `next`. At the end, begins a recheck if the scan is outdated.
    fn advance(&mut self, db: i32, key: &[u8], next: Option<&[u8]>) {
        let scan = self.by_lock.common_mut(db, key).and_then(|shares| shares.state.scan_mut());
        match (scan, next) {
            (Some(scan), Some(next)) => scan.from = next.into(),
            (Some(Scan { is_outdated: true, .. }), None) => {
                self.set_share_state(db, key, ShareState::Recheck(Scan::default()))
            }
            _ => self.set_share_state(db, key, ShareState::Stable),
        }
    }

    /// Continues a return or a recheck after a session has been removed, with which it may have been to continue.
    pub(super) fn continue_without_one(&mut self, db: i32, key: &[u8]) {
        if self.next_to_renew(db, key).is_some() {
            self.return_in_turn(db, key);
        } else if self.is_returning(db, key) {
            self.advance(db, key, None);
        } else if !self.rechecks.is_empty() && !self.has_shares(db, key) {
            self.rechecks.remove(&(db, key.into()));
        }
    }

    /// Schedules the immediate renewal of one share of a lock.
    pub fn renew_one_share(&mut self, db: i32, key: &[u8]) {
        let one = self.shares(db, key).next();
        one.into_iter().for_each(|one| self.schedule_renewal_at(one, UnixMs::MIN));
    }

    /// Removes one session that has ended together with others. Returns false if there is none.
    pub fn forget_ended(&mut self) -> bool {
        let Some(of_lock) = self.ended.front_mut() else { return false };
        match of_lock.next() {
            Some(id) => _ = self.remove(id),
            None => _ = self.ended.pop_front(),
        }
        true
    }
}

#[cfg(test)]
mod tests;
