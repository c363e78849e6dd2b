//! Checks that the module is not late.

use std::collections::HashSet;

use redis_lock::server::slot_of;

use super::lock_model::{Grant, LockModel, Session};
use super::spec::{Held, Lock, Ms};
use super::{Checker, Conditions, Name, Verdict};

/// The greatest delay of work that is due, in milliseconds.
const LATE_MS: Ms = 2;

/// The greatest delay after an obstacle. The module tries postponed work again after 20 to 80 ms.
const AFTER_OBSTACLE_MS: Ms = 115;

/// The time in which a waiter with NOTIFY is notified that the server cannot continue its wait.
const MAX_ABORT_MS: Ms = 600;

impl Checker {
    /// An event-loop iteration has ended. Checks that nothing is overdue.
    pub(super) fn check_time(&mut self, conditions: &Conditions) -> Verdict {
        self.unblocked.clear();
        self.check_answers()?;
        self.ledger.forget(conditions.steady);
        self.check_withdrawn()?;
        let Self { models, lost_slots, gone_slots, .. } = self;
        for (name, model) in models.iter_mut() {
            if let Some((_, since)) = gone_slots.iter().find(|(slot, _)| *slot == slot_of(&name.1)) {
                model.pubsub_waiters().for_each(|request| request.abort(conditions.now));
                check_gone(model, *since, conditions).map_err(|wrong| format!("{}: {wrong}", shown(name)))?;
            }
            if lost_slots.contains(&slot_of(&name.1)) {
                model.mark_sessions_uncertain();
            }
            model.note_first(conditions.now);
        }
        for (name, model) in models.iter_mut() {
            let is_here = !lost_slots.contains(&slot_of(&name.1));
            model.count_iteration(conditions, is_here).map_err(|wrong| format!("{}: {wrong}", shown(name)))?;
        }
        models.iter().try_for_each(|(name, model)| {
            check_deadlines(model, conditions).map_err(|wrong| format!("{}: {wrong}", shown(name)))?;
            let is_here = !lost_slots.contains(&slot_of(&name.1));
            match conditions.writable_since.filter(|_| is_here) {
                Some(since) => {
                    check_lock(model, conditions, since).map_err(|wrong| format!("{}: {wrong}", shown(name)))
                }
                None => Ok(()),
            }
        })
    }
}

impl Conditions {
    /// Returns whether the event loop has run, and the clock has run evenly, for some time.
    pub(super) fn is_steady(&self) -> bool {
        self.now > self.turning_since + AFTER_OBSTACLE_MS
    }

    /// Returns whether the module has had no obstacle for some time.
    pub(super) fn is_settled(&self) -> bool {
        self.writable_since.is_some_and(|since| self.now > since + AFTER_OBSTACLE_MS)
    }
}

impl Checker {
    /// Checks that an unblocked client gets its reply in the same event-loop iteration, or in the next one.
    fn check_answers(&mut self) -> Verdict {
        let granted = self.models.values().flat_map(|model| &model.grants).filter(|grant| grant.is_open);
        let granted = granted.filter_map(|grant| grant.entry.tag()).filter(|tag| self.asked.contains_key(tag));
        let overdue: HashSet<_> = granted.chain(self.released.keys().copied()).collect();
        let before = std::mem::replace(&mut self.overdue, overdue);
        match before.intersection(&self.overdue).next() {
            Some(tag) => Err(format!("request {tag} was let go, and is not answered")),
            None => Ok(()),
        }
    }
}

fn shown((db, key): &Name) -> String {
    format!("{} of database {db}", key.escape_ascii())
}

/// Returns whether work that was due at `due` is late, although the module has had no obstacle since `since`.
fn is_late(due: Ms, since: Ms, now: Ms) -> bool {
    now > (due + LATE_MS).max(since + AFTER_OBSTACLE_MS)
}

/// The same for the renewal of a session. The module tries it again every twelfth of the lease.
fn is_renewal_late(session: &Session, due: Ms, since: Ms, now: Ms) -> bool {
    now > (due + LATE_MS).max(since + AFTER_OBSTACLE_MS.max(session.lease / 12 + 5))
}

fn check_deadlines(model: &LockModel, conditions: &Conditions) -> Verdict {
    for request in model.requests() {
        let aborted_since = request.aborted_since.zip(conditions.writable_since);
        if aborted_since.is_some_and(|(lost, since)| is_late(lost + MAX_ABORT_MS, since + MAX_ABORT_MS, conditions.now))
        {
            return Err(format!("request {} is lost, and its client is not notified", request.tag));
        }
        if request.deadline.is_some_and(|deadline| is_late(deadline + 1, conditions.turning_since, conditions.now)) {
            return Err(format!("the time of request {} was up at {:?}", request.tag, request.deadline));
        }
    }
    Ok(())
}

/// Checks that a session ends, at its next renewal, whose lock is on another node since `gone_since`.
fn check_gone(model: &LockModel, gone_since: Ms, conditions: &Conditions) -> Verdict {
    let Some(since) = conditions.writable_since else { return Ok(()) };
    let is_late = |it: &&Session| is_renewal_late(it, gone_since + it.lease / 3, since, conditions.now);
    match model.sessions.iter().find(is_late) {
        Some(session) => Err(format!("the session of {:?} outlives its slot", session.who)),
        None => Ok(()),
    }
}

fn check_lock(model: &LockModel, conditions: &Conditions, since: Ms) -> Verdict {
    let (now, lock) = (conditions.now, model.lock(conditions.now));
    if let Some(granting_since) = conditions.granting_since {
        check_grants(model, &lock, granting_since, since, now)?;
    }
    lock.holders().iter().try_for_each(|held| check_holder(model, held, now, since))
}

/// Checks that a lock with capacity is granted, or goes back to its session. The delay counts from the end of the
/// suspension of grants.
fn check_grants(model: &LockModel, lock: &Lock, granting_since: Ms, since: Ms, now: Ms) -> Verdict {
    if let Some(free_since) = model.free_since(now).map(|free_since| free_since.max(granting_since)) {
        if model.first(now).is_some() && is_late(free_since, since, now) {
            return Err(format!("free since {free_since}, and somebody waits for it at {now}"));
        }
        let mut open = model.sessions.iter().filter(|session| session.is_open());
        if open.any(|session| is_renewal_late(session, free_since, since.max(granting_since), now)) {
            return Err(format!("not given back to its session since {free_since}"));
        }
    }
    let capacity_since = model.capacity_since(now).map(|capacity_since| capacity_since.max(granting_since));
    if let Some(capacity_since) = capacity_since.filter(|&capacity_since| is_late(capacity_since, since, now)) {
        return Err(format!("{lock:?} has room since {capacity_since}, and somebody waits for it at {now}"));
    }
    if matches!(lock, Lock::Shared(_)) { check_expired(model, lock, now, since.max(granting_since)) } else { Ok(()) }
}

/// Checks that a session with an open connection gets its share back after the lease has ended.
fn check_expired(model: &LockModel, lock: &Lock, now: Ms, since: Ms) -> Verdict {
    let is_lost = |session: &&Session| session.is_open() && !lock.is_held_by(&session.who);
    let is_late = |session: &&Session| is_renewal_late(session, session.renew_at.max(model.changed_at), since, now);
    match model.sessions.iter().filter(is_lost).find(is_late) {
        Some(session) => Err(format!("a share is not given back to its session: {:?}", session.who)),
        None => Ok(()),
    }
}

fn check_holder(model: &LockModel, held: &Held, now: Ms, since: Ms) -> Verdict {
    check_renewal(model, held, now, since)?;
    let closed = model.session_of(&held.who).filter(|session| session.is_sure);
    if closed.and_then(|session| session.closed_at).is_some_and(|closed_at| is_late(closed_at, since, now)) {
        return Err("held by a connection that is closed".to_owned());
    }
    let is_theirs = |grant: &&Grant| held.holds == 1 && !grant.is_overwritten;
    let untold = model.grant_to(&held.who).filter(is_theirs);
    if untold
        .and_then(|grant| grant.unnotified_since)
        .is_some_and(|unnotified_since| is_late(unnotified_since, since, now))
    {
        return Err("held by a client that never had the reply".to_owned());
    }
    Ok(())
}

/// Checks that the lease of an open session is renewed after a third of it.
fn check_renewal(model: &LockModel, held: &Held, now: Ms, since: Ms) -> Verdict {
    let open = model.session_of(&held.who).filter(|session| session.is_open());
    let (Some(session), Some(until)) = (open, held.until) else { return Ok(()) };
    let due = session.renew_at.max(model.changed_at);
    // The module does not shorten a lease that is longer than the limit.
    if until < now + session.lease / 2 && is_renewal_late(session, due, since, now) {
        return Err(format!("a session of {} ms ends at {until}, and was to be renewed at {due}", session.lease));
    }
    Ok(())
}
