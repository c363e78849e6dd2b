//! Compares what the module keeps for each lock with the model, between two steps. It also decides what an observer of the replies
//! alone could not know: whether a session has ended with an external write, and which detached entries were dropped.

use std::rc::Rc;

use redis_lock::core::{EntryView, HoldView, Kind, LockView, Session as SeenSession, SessionLeaseEnd};
use redis_lock::server::{Seen, slot_of};

use super::lock_model::{LockModel, QueueEntry, Session};
use super::settings::Limits;
use super::spec::{Lock, Ms, Who, latest_end};
use super::{Checker, Conditions, Name, Verdict};
use crate::request::Form;

/// What the module keeps for all locks.
pub type View = Vec<LockView>;

impl Checker {
    /// Sets what the module keeps at the end of the present step.
    pub fn look_ahead(&mut self, seen: Option<&Seen>) {
        self.ahead = seen.and_then(|seen| Rc::clone(&seen.0).downcast().ok());
    }

    /// Compares the model with what the module keeps now.
    pub(super) fn see(&mut self, conditions: &Conditions) -> Verdict {
        let Some(view) = self.behind.clone() else { return Ok(()) };
        let may_drop = std::mem::take(&mut self.may_drop_entries) || self.is_retiring;
        self.is_retiring &= conditions.writable_since.is_none()
            || view.iter().flat_map(|lock| &lock.entries).any(|entry| !entry.is_attached);
        let (limits, now) = (self.limits, conditions.now);
        for (name, model) in &mut self.models {
            let seen = lock_of(&view, name);
            let (entries, holds) = seen.map_or((&[][..], &[][..]), |seen| (&*seen.entries, &*seen.holds));
            // After an external write, the module has not found yet which shares it has removed.
            let is_found = !seen.is_some_and(|seen| seen.needs_recheck);
            let is_known = is_found && !self.lost_slots.contains(&slot_of(&name.1));
            let wrong = |wrong| format!("{} of database {}: {wrong}", name.1.escape_ascii(), name.0);
            model.see_queue(entries, may_drop, now).map_err(wrong)?;
            model.see_sessions(holds, &limits, is_known, now).map_err(wrong)?;
        }
        Ok(())
    }

    /// Returns whether the entry of a claim is still in the queue, at the same turn, at the end of this step.
    pub(super) fn keeps_place(&self, name: &Name, who: &Who) -> bool {
        let turn = |view: &View| {
            let entry = lock_of(view, name)?.entries.iter().find(|entry| is(entry.kind, &entry.owner, who))?;
            entry.is_attached.then_some(entry.turn)
        };
        let now = self.behind.as_deref().and_then(turn);
        now.is_some() && self.ahead.as_deref().and_then(turn) == now
    }

    /// Returns whether a claim has its turn at the end of this step: an entry as old as in the model, and before all later ones.
    pub(super) fn has_turn_at_end(&self, name: &Name, model: &LockModel, who: &Who) -> bool {
        let Some(entry) = model.queue.iter().find(|entry| entry.who == *who) else { return false };
        let later = || model.queue.iter().filter(|other| other.turn > entry.turn);
        let is_later = |it: &EntryView| later().any(|other| is(it.kind, &it.owner, &other.who));
        let entries = self.ahead.as_deref().and_then(|view| lock_of(view, name)).map_or(&[][..], |lock| &lock.entries);
        let until_later = || entries.iter().take_while(|it| !is_later(it));
        until_later().any(|it| it.since == entry.since && is(it.kind, &it.owner, who))
    }

    /// Returns whether shares of a lock are being returned to their sessions at the beginning or the end of this step.
    pub(super) fn is_returning(&self, name: &Name) -> bool {
        let views = [self.behind.as_deref(), self.ahead.as_deref()].into_iter().flatten();
        views.filter_map(|view| lock_of(view, name)).any(|lock| lock.is_returning)
    }

    /// Returns whether a holder has a session at the end of this step.
    pub(super) fn keeps_session(&self, name: &Name, who: &Who) -> bool {
        let hold = self.ahead.as_deref().and_then(|view| lock_of(view, name)?.holds.iter().find(|hold| of(hold, who)));
        hold.is_some_and(|hold| hold.session.is_some())
    }
}

impl LockModel {
    fn see_queue(&mut self, seen: &[EntryView], may_drop: bool, now: Ms) -> Verdict {
        let position = |entry: &QueueEntry| seen.iter().position(|it| is(it.kind, &it.owner, &entry.who));
        let is_dropped = |entry: &QueueEntry| {
            let may_be = may_drop || entry.kept_until.is_some_and(|until| until <= now);
            entry.request.is_none() && may_be && position(entry).is_none()
        };
        self.queue.retain(|entry| !is_dropped(entry));
        let waits = |entry: &&QueueEntry| entry.request.as_ref().is_some_and(|request| !request.is_unblocked);
        for entry in self.queue.iter().filter(waits) {
            let place = position(entry).map(|index| &seen[index]);
            if place.is_none_or(|it| !it.is_attached || it.since != entry.since) {
                return Err(format!(
                    "{:?} waits since {}, and its place is {:?}",
                    entry.who,
                    entry.since,
                    place.map(text)
                ));
            }
        }
        let places: Vec<_> = self.queue.iter().filter_map(position).collect();
        let is_unblocked = |entry: &QueueEntry| entry.request.as_ref().is_some_and(|request| request.is_unblocked);
        if let Some(entry) = self.queue.iter().find(|entry| position(entry).is_none() && !is_unblocked(entry)) {
            return Err(format!(
                "the entry of {:?} was dropped, which is kept until {:?}",
                entry.who, entry.kept_until
            ));
        }
        if !places.is_sorted() {
            let order: Vec<_> = self.queue.iter().map(|entry| &entry.who).collect();
            return Err(format!(
                "the order is {order:?}, and the module has {:?}",
                seen.iter().map(text).collect::<Vec<_>>()
            ));
        }
        let is_known = |it: &EntryView| self.queue.iter().any(|entry| is(it.kind, &it.owner, &entry.who));
        match seen.iter().find(|it| it.is_attached && !is_known(it)) {
            Some(it) => Err(format!("{} waits without a request", text(it))),
            None => Ok(()),
        }
    }

    fn see_sessions(&mut self, holds: &[HoldView], limits: &Limits, is_known: bool, now: Ms) -> Verdict {
        let lock = self.lock(now);
        // An external write may have cut the expiry of the key, after which the shares in it end together.
        let is_cut =
            self.entry.as_ref().is_some_and(|entry| latest_end(entry).is_some_and(|latest| latest != entry.expiry));
        let may_be_sure = is_known && !is_cut;
        let is_revoked = |session: &Session| holds.iter().any(|hold| of(hold, &session.who) && hold.is_revoked);
        let mut wrong = Ok(());
        self.sessions.retain_mut(|session| {
            session.is_sure &= is_known || session.who.form != Form::Share;
            let hold = holds.iter().find(|hold| of(hold, &session.who));
            let seen = hold.and_then(|hold| hold.session.as_ref());
            if let Some(Err(error)) = seen.map(|seen| session.see(seen, &lock, limits, may_be_sure)) {
                wrong = Err(error);
            }
            let goes_on = seen.is_some() || session.is_closed() && is_revoked(session);
            if !goes_on && session.must_go_on(&lock, limits, now) {
                wrong = Err(format!("the session of {:?} has ended, and {lock:?}", session.who));
            }
            goes_on
        });
        let who = |hold: &HoldView| lock.holders().into_iter().map(|held| held.who).find(|who| of(hold, who));
        self.revoked = holds.iter().filter(|hold| hold.is_revoked).filter_map(who).collect();
        wrong
    }
}

impl Session {
    /// Compares the session with what the module keeps for it. If it was uncertain, takes over what the module keeps.
    fn see(&mut self, seen: &SeenSession, lock: &Lock, limits: &Limits, may_be_sure: bool) -> Verdict {
        let (lease, grace) = (seen.lease.end_from(0), seen.grace.map(|grace| grace.end_from(0)));
        if self.is_sure {
            let leases = [self.lease, limits.cut(self.lease).max(100)];
            let is_same = leases.contains(&lease) && grace == self.grace && seen.holds == self.holds;
            if !is_same || seen.client != self.client && !self.is_closed() {
                return Err(format!("the session of {:?} is {seen:?}, not {self:?}", self.who));
            }
        }
        (self.lease, self.grace) = (lease, grace);
        if !self.is_sure {
            self.holds = seen.holds;
        }
        if self.may_be_early && seen.renew_at != Ms::MAX {
            self.renew_at = seen.renew_at;
        }
        let end = match seen.lease_end {
            SessionLeaseEnd::At(end) => Some(Some(end)),
            SessionLeaseEnd::Never => Some(None),
            SessionLeaseEnd::Unknown | SessionLeaseEnd::Passed => None,
        };
        let held = lock.held_by(&self.who).filter(|held| held.holds == self.holds);
        self.is_sure |= may_be_sure && held.is_some_and(|held| end == Some(held.until));
        Ok(())
    }

    /// Returns whether the module must not have forgotten the session.
    fn must_go_on(&self, lock: &Lock, limits: &Limits, now: Ms) -> bool {
        let until = lock.held_by(&self.who).map(|held| held.until);
        match until {
            Some(None) if self.is_kept && !self.is_closed() => true,
            _ if !self.is_sure => false,
            // The lease already ends with the grace period, or before.
            Some(Some(until)) if self.is_closed() => self.lease_end_in_grace(limits, now).is_none_or(|end| until > end),
            Some(None) => true,
            _ => !self.is_closed(),
        }
    }
}

fn lock_of<'v>(view: &'v View, name: &Name) -> Option<&'v LockView> {
    view.iter().find(|lock| lock.db == name.0 && lock.key == name.1)
}

/// Returns an entry as a text for a failure.
fn text(it: &EntryView) -> String {
    format!("{:?} of {}, turn {}, since {}", it.kind, it.owner.escape_ascii(), it.turn, it.since)
}

fn of(hold: &HoldView, who: &Who) -> bool {
    is(hold.kind, &hold.owner, who)
}

fn is(kind: Kind, owner: &[u8], who: &Who) -> bool {
    let form = match kind {
        Kind::Mutex => Form::Mutex,
        Kind::Reentrant => Form::Reentrant,
        Kind::Shared => Form::Share,
    };
    form == who.form && *owner == *who.name
}
