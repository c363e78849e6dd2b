//! The rules of the contract that concern only shares.

use redis_lock::server::{Entry, Value, Writer};

use super::lock_model::{LockModel, QueueEntry, Session};
use super::spec::{Held, Lock, Ms, Who, end_of, latest_end};
use super::{Checker, Name, Verdict};
use crate::request::Form;

impl Checker {
    /// The module has changed a lock that was and is free or shared. It changes one share at a time.
    pub(super) fn shares_changed(&mut self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> Verdict {
        let (was, is) = (before.holders(), after.holders());
        let removed: Vec<&Held> = was.iter().filter(|held| !after.is_held_by(&held.who)).collect();
        let joined: Vec<&Held> = is.iter().filter(|held| !before.is_held_by(&held.who)).collect();
        let altered: Vec<_> =
            was.iter().filter_map(|was| Some((was, is.iter().find(|is| is.who == was.who)?))).collect();
        let altered: Vec<_> = altered.into_iter().filter(|(was, is)| was != is).collect();
        if removed.len() + joined.len() + altered.len() > 1 {
            return Err(format!("{before:?} becomes {after:?}"));
        }
        // An expiry may have cut the lease that the command has found, and the module has corrected that since.
        let found = self.running.as_ref().map(|running| before.expiring(running.expiry));
        let mut is_own = |before: &Lock| self.is_own(name, before, after, now);
        if is_own(before) || found.is_some_and(|found| is_own(&found)) {
            return Ok(());
        }
        if let Some((was, is)) = altered.first() {
            let was = Held { until: before.end_of_lease(was), ..(*was).clone() };
            if self.begins_grace(name, &was, is, now)? {
                return Ok(());
            }
        }
        let changed = removed.first().or(joined.first()).copied().or(altered.first().map(|(_, is)| *is));
        // A grant to a holder changes no other share.
        let is_alone = |held: &Held| changed.is_none_or(|changed| changed.who == held.who);
        if let Some(held) = self.regranted(name, before, after, now).filter(is_alone) {
            return self.handed_over(name, &held, before, now);
        }
        match (removed.first(), joined.first(), altered.first()) {
            (Some(held), ..) => {
                self.model(name).is_being_shared = true;
                self.forfeited(name, &held.who, None, now)
            }
            (_, Some(held), _) if self.is_given_back(name, held, now)? => Ok(()),
            (_, Some(held), _) => self.handed_over(name, held, before, now),
            (.., Some((was, is))) => {
                let was = Held { until: before.end_of_lease(was), ..(*was).clone() };
                self.renewed(name, &was, is, now)
            }
            (None, None, None) => {
                self.left_unchanged(name, after, now);
                Ok(())
            }
        }
    }

    /// Finds a next waiter that already holds a share, which is possible after external writes, and that got its share
    /// again by this change.
    fn regranted(&mut self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> Option<Held> {
        let limits = self.limits;
        let model = self.model(name);
        let is_next =
            |entry: &&QueueEntry| model.may_be_next(&entry.who, now) && model.waits(&entry.who) && entry.fits(before);
        let entry = model.queue.iter().find(is_next)?;
        let held = after.held_by(&entry.who).filter(|_| before.is_held_by(&entry.who))?;
        let is_granted = held.until == limits.lease_for(entry).map(|lease| now + lease);
        Some(held).filter(|held| is_granted && !self.keeps_place(name, &held.who))
    }

    /// Checks the members that the module has written. The key must expire with its last share. The module must not
    /// purge an expired share of an open session.
    pub(super) fn check_members(&mut self, name: &Name, previous: Option<&Entry>, now: Ms) -> Verdict {
        let may_be_suspended = self.suspension.may_be();
        let model = self.model(name);
        if let Some((entry, latest)) = model.entry.as_ref().and_then(|entry| Some((entry, latest_end(entry)?))) {
            if entry.expiry != latest {
                return Err(format!("the key lives until {:?}, and its last share until {latest:?}", entry.expiry));
            }
        }
        if may_be_suspended {
            return Ok(()); // Sessions get these shares back later, whether the members still exist or not.
        }
        let Some(Value::SortedSet(members)) = previous.map(|entry| &entry.value) else { return Ok(()) };
        let expired = members.iter().filter(|(_, score)| end_of(**score).is_some_and(|end| end < now));
        let whose = expired.map(|(name, _)| Who { form: Form::Share, name: name.clone() });
        let is_open = |who: &Who| model.session_of(who).is_some_and(Session::is_open);
        if let Some(who) = whose.clone().find(|who| is_open(who) && !model.has_member(&who.name)) {
            return Err(format!("the share of an open session is removed: {who:?}"));
        }
        let mut removed = whose.filter(|who| !model.has_member(&who.name));
        removed.try_for_each(|who| model.check_no_grace(&who, now))
    }

    /// A step has ended that has granted or released shares. Checks that all waiters with capacity were granted one,
    /// except where the batch may have ended before.
    pub(super) fn check_shared(&mut self, now: Ms) -> Verdict {
        if self.has_short_batches {
            return Ok(());
        }
        let is_silent = self.must_not_publish() || self.suspension.may_be();
        for model in self.models.values_mut() {
            let is_due = std::mem::take(&mut model.is_being_shared) && !std::mem::take(&mut model.lags) && !is_silent;
            let lock = model.lock(now);
            if let Some(first) = model.first(now).filter(|first| is_due && first.fits(&lock)) {
                // If the order of the queue is uncertain, so is the next waiter. A waiter may not know yet that it has
                // timed out.
                let ahead = |queue_entry: &&QueueEntry| queue_entry.turn != first.turn;
                let is_held_up = model.queue.iter().take_while(ahead).any(|queue_entry| model.waits(&queue_entry.who));
                if !is_held_up {
                    return Err(format!("{:?} waits, and there is room beside {lock:?}", first.who));
                }
            }
        }
        Ok(())
    }
}

impl LockModel {
    /// An external write has changed the key, and the sessions of shares continue or not.
    pub fn share_sessions_after(&mut self, was: &Lock, is: &Lock, writer: Writer, now: Ms) {
        let is_share = |session: &Session| session.who.form == Form::Share;
        let lease_has_ended = |session: &Session| {
            let held = was.held_by(&session.who);
            is_share(session) && held.is_none_or(|held| held.until.is_some_and(|until| until <= now))
        };
        let all_end = match writer {
            Writer::Arrival => true,
            Writer::Command => *is == Lock::Free && !self.sessions.iter().any(lease_has_ended),
            _ => false,
        };
        self.sessions.retain(|session| !all_end || !is_share(session));
        let shares = self.sessions.iter_mut().filter(|session| is_share(session));
        shares.for_each(|session| session.mark_changed(writer, was, is));
    }

    /// The key has expired. The client that set the expiry took away the shares with later ends.
    pub fn end_early(&mut self, before: &Lock, now: Ms) {
        let is_later = |held: Held| held.who.form == Form::Share && held.until.is_none_or(|until| until > now);
        let is_early = |session: &&mut Session| before.held_by(&session.who).is_some_and(is_later);
        self.sessions.iter_mut().filter(is_early).for_each(Session::mark_uncertain);
    }

    /// Returns whether a session certainly continues, and does not hold the lock, because its lease has ended.
    pub fn has_session_without(&self, lock: &Lock) -> bool {
        self.sessions.iter().any(|session| session.is_open() && !lock.is_held_by(&session.who))
    }

    fn has_member(&self, name: &[u8]) -> bool {
        match self.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::SortedSet(members)) => members.contains_key(name),
            _ => false,
        }
    }
}
