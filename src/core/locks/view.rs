//! A copy of what the module keeps, for tests that compare it with a model.

use std::rc::Rc;

use super::Locks;
use super::record::{EntryState, RecordId, Session};

use crate::core::{Cursor, Kind, UnixMs};

/// What the module keeps for one lock.
#[derive(Debug)]
pub struct LockView {
    pub db: i32,
    pub key: Rc<[u8]>,
    /// The queue, in the order of the turns.
    pub entries: Vec<EntryView>,
    pub holds: Vec<HoldView>,
    /// Whether external writes may have removed shares.
    pub needs_recheck: bool,
    /// Whether shares are being returned to their sessions.
    pub is_returning: bool,
}

/// An entry of a queue.
#[derive(Debug)]
pub struct EntryView {
    pub turn: u64,
    pub kind: Kind,
    pub owner: Box<[u8]>,
    pub since: UnixMs,
    pub is_attached: bool,
}

/// A hold for which something is kept.
#[derive(Debug)]
pub struct HoldView {
    pub kind: Kind,
    pub owner: Box<[u8]>,
    pub session: Option<Session>,
    pub is_revoked: bool,
}

impl Locks {
    /// Returns a copy of all records. O(N^2) in the number of entries and holds.
    pub fn view(&self) -> Vec<LockView> {
        let mut cursor = Cursor::start();
        let ids = std::iter::from_fn(|| self.records.next(&mut cursor));
        ids.filter_map(|id| self.view_of(id)).collect()
    }

    fn view_of(&self, id: RecordId) -> Option<LockView> {
        let (db, key) = self.lock_of(id)?;
        let (mut entries_from, mut holds_from) = (Cursor::start(), Cursor::start());
        let ids = std::iter::from_fn(|| self.entries.next(&mut entries_from));
        let entries = ids.filter_map(|entry| self.entries.get(entry)).filter(|entry| entry.record == id);
        let view = |entry: &super::QueueEntry| EntryView {
            turn: entry.turn.0,
            kind: entry.claim.kind,
            owner: entry.claim.owner.clone(),
            since: entry.since,
            is_attached: matches!(entry.state, EntryState::Attached(_)),
        };
        let mut entries: Vec<_> = entries.map(view).collect();
        entries.sort_unstable_by_key(|entry| entry.turn);
        let ids = std::iter::from_fn(|| self.holds.next(&mut holds_from)).filter(|hold| self.is_current(*hold));
        let holds = ids.filter_map(|hold| self.hold(hold)).filter(|hold| hold.record == id);
        let holds = holds.map(|hold| HoldView {
            kind: hold.kind,
            owner: hold.owner.clone(),
            session: hold.session.as_deref().cloned(),
            is_revoked: hold.revocation.is_some(),
        });
        let (needs_recheck, is_returning) = (self.needs_recheck(id), self.has_shares_to_return(id));
        Some(LockView { db, key, entries, holds: holds.collect(), needs_recheck, is_returning })
    }
}
