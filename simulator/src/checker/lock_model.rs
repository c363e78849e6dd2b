//! The checker's model of one lock: its value, its queue, its sessions and its grants.

mod fairness;
mod grants;
mod queue;
mod sessions;

use redis_lock::server::{Entry, Tag, Value};

use super::spec::{Held, Lock, Ms, Who, end_of};
use fairness::Delays;
pub use grants::Grant;
pub use queue::{QueueEntry, Waiting};
pub use sessions::Session;

/// The model of one lock.
#[derive(Clone, Default)]
pub struct LockModel {
    /// The value of the key after the last complete change.
    pub entry: Option<Entry>,
    /// A change by the module that is not complete yet.
    pub draft: Option<Option<Entry>>,
    /// The time of the last change.
    pub changed_at: Ms,
    /// The entries in the order of their turns, with the detached ones.
    pub queue: Vec<QueueEntry>,
    /// At most one session, except that each share can have one.
    pub sessions: Vec<Session>,
    /// The request of the first entry, and the time since which it is the first. Updated at the end of an iteration.
    pub first_since: Option<(Tag, Ms)>,
    /// Whether a share was granted or released since the last step ended, so that further grants are due.
    pub is_being_shared: bool,
    /// Whether a request has left the queue since then. The grant to the next one may come an iteration later.
    pub lags: bool,
    /// Whether the module has set all leases, under the current limit.
    pub is_counted: bool,
    /// The grants whose reply was not made yet, or of which no client knows, the latest last.
    pub grants: Vec<Grant>,
    pub last_turn: u64,
    /// The holders whose locks the module was to revoke at the beginning of this step.
    pub revoked: Vec<Who>,
    /// The holders of overwritten shares whose grant no client knows of. The module revokes such a share if an external
    /// write brings it back.
    pub unknown: Vec<Who>,
    /// The delays of the work that is due.
    pub delays: Delays,
}

impl LockModel {
    /// Forgets the sessions and grants of this holder, and of the holders that it excludes, because it gets or loses the lock.
    pub fn start_over(&mut self, who: &Who) {
        self.sessions.retain(|session| session.can_hold_with(who));
        self.unknown.retain(|other| other != who);
        self.revoked.retain(|other| other != who);
        self.void_grants(who);
    }

    /// Returns the lock at this time.
    pub fn lock(&self, now: Ms) -> Lock {
        Lock::of(self.entry.as_ref(), now)
    }

    /// Returns the time since which a shared lock has capacity for the first entry. Returns `None` if it has none.
    pub fn capacity_since(&self, now: Ms) -> Option<Ms> {
        let lock = self.lock(now);
        let queue_entry =
            self.first(now).filter(|queue_entry| matches!(lock, Lock::Shared(_)) && queue_entry.fits(&lock))?;
        let first_since = self.first_since.filter(|(tag, _)| Some(*tag) == queue_entry.tag())?.1;
        let Value::SortedSet(members) = &self.entry.as_ref()?.value else { return None };
        let mut ends: Vec<_> = members.values().copied().collect();
        ends.sort_unstable();
        // The number of leases that had to end first.
        let excess = queue_entry.limit().map_or(0, |limit| (ends.len() + 1).saturating_sub(limit as usize));
        let expired_at = excess.checked_sub(1).and_then(|last| end_of(*ends.get(last)?)).map_or(Ms::MIN, |end| end + 1);
        Some(self.changed_at.max(first_since).max(expired_at))
    }

    /// Returns whether the value has expired members.
    pub fn has_expired(&self, now: Ms) -> bool {
        match self.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::SortedSet(members)) => {
                members.values().any(|&score| end_of(score).is_some_and(|end| end < now))
            }
            _ => false,
        }
    }

    /// Returns the time since which the lock is free, if it is.
    pub fn free_since(&self, now: Ms) -> Option<Ms> {
        match &self.entry {
            None => Some(self.changed_at),
            Some(entry) if entry.is_over(now) => entry.expiry.map(|expiry| self.changed_at.max(expiry + 1)),
            Some(_) => None,
        }
    }

    /// Returns whether the module may revoke the lock of this holder: its connection has closed, or no client can know of the
    /// grant.
    pub fn is_forfeit(&self, who: &Who) -> bool {
        self.session_of(who).is_some_and(Session::is_closed) || self.is_unnotified(who)
    }

    /// Returns the same, if an external write may have brought back a share whose grant no client has received.
    pub fn may_be_forfeit(&self, who: &Who) -> bool {
        self.is_forfeit(who) || self.unknown.contains(who)
    }

    /// Returns whether the module knows that the connection of this holder has closed, and no grace period is left.
    pub fn must_forfeit(&self, held: &Held, now: Ms) -> bool {
        self.session_of(&held.who)
            .is_some_and(|session| session.is_over(now) && (session.continues() || session.holds == held.holds))
    }

    /// Returns the model after a revocation from this holder.
    pub fn without(&self, who: &Who, kept_until: Option<Ms>) -> Self {
        let mut after = self.clone();
        after.forfeit(who, kept_until);
        after
    }

    /// Revokes the lock of this holder. A grant that no client knows of keeps its turn.
    pub fn forfeit(&mut self, who: &Who, kept_until: Option<Ms>) {
        self.sessions.retain(|session| session.can_hold_with(who));
        self.revoked.retain(|other| other != who);
        if self.is_unnotified(who) {
            if let Some(index) = self.grants.iter().rposition(|grant| grant.entry.who == *who) {
                let grant = self.grants.remove(index);
                self.restore(grant, kept_until);
            }
        }
    }
}
