//! What must not be late.

use std::collections::HashSet;

use redis_lock::server::slot_of;

use super::door::{Door, Grant, Session, Trust};
use super::spec::{Held, Lock, Ms};
use super::{Checker, Name, Verdict, Weather};

/// How late what is due may be, in milliseconds.
const LATE_MS: Ms = 2;

/// How late it may be when something was in the way just before: what is put off is tried again after 20 to 80 ms.
const AFTER_OBSTACLE_MS: Ms = 115;

/// In what time those who wait for a message are told that the server cannot go on with it.
const LOST_MS: Ms = 600;

impl Checker {
    /// A loop round is over: nothing may be overdue.
    pub(super) fn check_time(&mut self, weather: &Weather) -> Verdict {
        self.unblocked.clear();
        self.check_answers()?;
        self.ledger.forget(weather.steady);
        self.check_withdrawn()?;
        self.end_sessions_elsewhere(weather);
        let Self { doors, lost_slots, gone_slots, .. } = self;
        for (name, door) in doors.iter_mut() {
            if gone_slots.contains(&slot_of(&name.1)) {
                door.notified().for_each(|request| request.lose(weather.now));
            }
            door.drop_dead_session(weather.is_settled());
            door.drop_expired(weather.all_done_before(), weather.now);
            if lost_slots.contains(&slot_of(&name.1)) {
                door.doubt_sessions();
            }
            door.read_sessions(weather);
            door.note_first(weather.now);
        }
        for (name, door) in doors.iter_mut() {
            let is_here = !lost_slots.contains(&slot_of(&name.1));
            door.count_iteration(weather, is_here).map_err(|wrong| format!("{}: {wrong}", shown(name)))?;
        }
        doors.iter().try_for_each(|(name, door)| {
            check_deadlines(door, weather).map_err(|wrong| format!("{}: {wrong}", shown(name)))?;
            let is_here = !lost_slots.contains(&slot_of(&name.1));
            match weather.writable_since.filter(|_| is_here) {
                Some(since) => check_lock(door, weather, since).map_err(|wrong| format!("{}: {wrong}", shown(name))),
                None => Ok(()),
            }
        })
    }
}

impl Weather {
    /// Whether the loop has turned, and the clock run evenly, for a while.
    pub(super) fn is_steady(&self) -> bool {
        self.now > self.turning_since + AFTER_OBSTACLE_MS
    }

    /// Whether nothing has been in the module's way for a while.
    pub(super) fn is_settled(&self) -> bool {
        self.writable_since.is_some_and(|since| self.now > since + AFTER_OBSTACLE_MS)
    }

    /// What was due before this time has been done.
    fn all_done_before(&self) -> Ms {
        if self.is_steady() { self.now - LATE_MS } else { Ms::MIN }
    }
}

impl Door {
    /// The module has read the lease that somebody else has set, if nothing was in its way.
    fn read_sessions(&mut self, weather: &Weather) {
        let lock = self.lock(weather.now);
        let Some(since) = weather.writable_since else { return };
        let is_read = |session: &&mut Session| is_renewal_late(session, session.renew_at, since, weather.now);
        for session in self.sessions.iter_mut().filter(|session| session.trust == Trust::Unread).filter(is_read) {
            session.trust = if lock.is_held_by(&session.who) { Trust::Sure } else { Trust::Doubtful };
        }
    }
}

impl Checker {
    /// Who was let go is answered in that round of the loop, or the next.
    fn check_answers(&mut self) -> Verdict {
        let granted = self.doors.values().flat_map(|door| &door.grants).flat_map(|grant| &grant.open);
        let granted = granted.map(|request| request.tag).filter(|tag| self.asked.contains_key(tag));
        let owed: HashSet<_> = granted.chain(self.released.iter().copied()).collect();
        let before = std::mem::replace(&mut self.owed, owed);
        match before.intersection(&self.owed).next() {
            Some(tag) => Err(format!("request {tag} was let go, and is not answered")),
            None => Ok(()),
        }
    }

    /// A slot that leaves ends its sessions, as soon as the module looks at them.
    fn end_sessions_elsewhere(&mut self, weather: &Weather) {
        let Some(since) = weather.writable_since else { return };
        let gone = |name: &Name| self.gone_slots.contains(&slot_of(&name.1));
        // It is renewed every third of its lease, and tried again every twelfth.
        let is_unseen = |session: &Session| weather.now <= since + 100 + session.lease / 2;
        self.doors.iter_mut().filter(|(name, _)| gone(name)).for_each(|(_, door)| door.sessions.retain(is_unseen));
    }
}

fn shown((db, key): &Name) -> String {
    format!("{} of database {db}", key.escape_ascii())
}

/// Whether what was due at `due` is late, though nothing has been in its way since then.
fn is_late(due: Ms, since: Ms, now: Ms) -> bool {
    now > (due + LATE_MS).max(since + AFTER_OBSTACLE_MS)
}

/// The same for the renewal of a session: what is put off is tried again every twelfth of its lease.
fn is_renewal_late(session: &Session, due: Ms, since: Ms, now: Ms) -> bool {
    now > (due + LATE_MS).max(since + AFTER_OBSTACLE_MS.max(session.lease / 12 + 5))
}

fn check_deadlines(door: &Door, weather: &Weather) -> Verdict {
    let requests = door.line.iter().flat_map(|place| &place.requests);
    for request in requests {
        let lost_since = request.lost_since.zip(weather.writable_since);
        if lost_since.is_some_and(|(lost, since)| is_late(lost + LOST_MS, since + LOST_MS, weather.now)) {
            return Err(format!("request {} is lost, and not told", request.tag));
        }
        if request.deadline.is_some_and(|deadline| is_late(deadline + 1, weather.turning_since, weather.now)) {
            return Err(format!("the time of request {} was up at {:?}", request.tag, request.deadline));
        }
    }
    Ok(())
}

fn check_lock(door: &Door, weather: &Weather, since: Ms) -> Verdict {
    let (now, lock) = (weather.now, door.lock(weather.now));
    if let Some(granting_since) = weather.granting_since {
        check_grants(door, &lock, granting_since, since, now)?;
    }
    lock.holders().iter().try_for_each(|held| check_holder(door, held, now, since))
}

/// Who is to have the lock has it, from the moment when grants are not held back any more.
fn check_grants(door: &Door, lock: &Lock, granting_since: Ms, since: Ms, now: Ms) -> Verdict {
    if let Some(free_since) = door.free_since(now).map(|free_since| free_since.max(granting_since)) {
        if door.first(now).is_some() && is_late(free_since, since, now) {
            return Err(format!("free since {free_since}, and somebody waits for it at {now}"));
        }
        let mut open = door.sessions.iter().filter(|session| session.is_open());
        if open.any(|session| is_renewal_late(session, free_since, since.max(granting_since), now)) {
            return Err(format!("not given back to its session since {free_since}"));
        }
    }
    let room_since = door.room_since(now).map(|room_since| room_since.max(granting_since));
    if let Some(room_since) = room_since.filter(|&room_since| is_late(room_since, since, now)) {
        return Err(format!("{lock:?} has room since {room_since}, and somebody waits for it at {now}"));
    }
    if matches!(lock, Lock::Shared(_)) { check_passed(door, lock, now, since.max(granting_since)) } else { Ok(()) }
}

/// A share whose lease has ended although a connection is open is given back.
fn check_passed(door: &Door, lock: &Lock, now: Ms, since: Ms) -> Verdict {
    let is_lost = |session: &&Session| session.is_open() && !lock.is_held_by(&session.who);
    let is_late = |session: &&Session| is_renewal_late(session, session.renew_at.max(door.changed_at), since, now);
    match door.sessions.iter().filter(is_lost).find(is_late) {
        Some(session) => Err(format!("a share is not given back to its session: {:?}", session.who)),
        None => Ok(()),
    }
}

fn check_holder(door: &Door, held: &Held, now: Ms, since: Ms) -> Verdict {
    check_renewal(door, held, now, since)?;
    let closed = door.session_of(&held.who).filter(|session| !session.is_doubtful());
    if closed.and_then(|session| session.closed_at).is_some_and(|closed_at| is_late(closed_at, since, now)) {
        return Err("held by a connection that is closed".to_owned());
    }
    let is_theirs = |grant: &&Grant| held.holds == 1 && !grant.is_overwritten;
    let untold = door.grant_to(&held.who).filter(is_theirs);
    if untold.and_then(|grant| grant.untold_at).is_some_and(|untold_at| is_late(untold_at, since, now)) {
        return Err("held by one who was never told".to_owned());
    }
    Ok(())
}

/// An open session has its lease renewed after a third of it.
fn check_renewal(door: &Door, held: &Held, now: Ms, since: Ms) -> Verdict {
    let open = door.session_of(&held.who).filter(|session| session.is_open());
    let (Some(session), Some(until)) = (open, held.until) else { return Ok(()) };
    let due = session.renew_at.max(door.changed_at);
    // A lease that is longer than one that was cut is not cut short.
    if until < now + session.lowest / 2 && is_renewal_late(session, due, since, now) {
        return Err(format!("a session of {} ms ends at {until}, and was to be renewed at {due}", session.lease));
    }
    Ok(())
}
