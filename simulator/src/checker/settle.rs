//! Every change that the module makes to a lock must be one that the contract knows.

use redis_lock::server::{Entry, Note, Tag};

use super::door::{Grant, Place, Session, Trust, Waiting};
use super::spec::{Held, Lock, Ms, Outcome, Who, outcome};
use super::{Checker, LAST_TOKEN, Name, Verdict, is_counter, number};
use crate::request::{Request, Verb, token_of};

impl Checker {
    /// The module has changed a key.
    pub(super) fn changed(&mut self, name: &Name, now: Ms) -> Verdict {
        let door = self.door(name);
        let Some(draft) = door.draft.take() else { return Ok(()) };
        let before = door.lock(now);
        let earlier = std::mem::replace(&mut door.entry, draft);
        door.changed_at = now;
        if self.running.as_ref().is_some_and(|running| is_counter(&name.1, &running.request)) {
            return self.drawn(name, earlier.as_ref(), now);
        }
        let after = self.door(name).lock(now);
        if before == after && !after.holder().is_some_and(|held| self.is_regranted(name, held, now)) {
            return Ok(());
        }
        if self.is_own(name, &before, &after, now) {
            return Ok(());
        }
        match (&before, &after) {
            (Lock::Free, Lock::Held(held)) if self.is_given_back(name, held, now)? => Ok(()),
            (Lock::Free, Lock::Held(held)) => self.handed_over(name, held, now),
            (Lock::Held(was), Lock::Held(is)) if was.who == is.who && !self.is_regranted(name, is, now) => {
                self.renewed(name, was, is, now)
            }
            (Lock::Held(was), _) => {
                self.forfeited(name, &was.who, now)?;
                match &after {
                    Lock::Held(held) => self.handed_over(name, held, now),
                    _ => match self.door(name).first(now) {
                        Some(first) => Err(format!("{:?} waits, and the lock goes to nobody", first.who)),
                        None => Ok(()),
                    },
                }
            }
            _ => Err(format!("{before:?} becomes {after:?}")),
        }
    }

    /// Whether the lock is taken from this holder, and a waiter by the same name is the next.
    fn is_regranted(&mut self, name: &Name, held: &Held, now: Ms) -> bool {
        let kept_until = self.limits.kept_until(now);
        let door = self.door(name);
        if !door.is_forfeit(&held.who) {
            return false;
        }
        let mut after = door.clone();
        after.forfeit(&held.who, kept_until);
        after.may_be_next(&held.who, now)
    }

    /// A fencing token was drawn.
    fn drawn(&mut self, name: &Name, earlier: Option<&Entry>, now: Ms) -> Verdict {
        let earlier = earlier.filter(|entry| !entry.is_over(now));
        let entry = self.door(name).entry.as_ref();
        if earlier.and_then(|entry| entry.expiry) != entry.and_then(|entry| entry.expiry) {
            return Err(format!("a counter does not keep its expiry: {earlier:?}, then {entry:?}"));
        }
        let (was, is) = (number(earlier), number(entry));
        if earlier.is_some() && was.is_none() {
            return Err(format!("a token is drawn from {earlier:?}"));
        }
        let Some(running) = &mut self.running else { return Ok(()) };
        running.reply = is;
        let (lock, holder) = (running.name.clone(), token_of(running.request.identity));
        self.door(&lock).grants.iter_mut().filter(|grant| grant.place.who.name == holder).for_each(Grant::tell);
        // Simulated clocks have no parts of milliseconds.
        let due = was.map_or(now * 1000, |was| was.saturating_add(1).max(now * 1000));
        if due > LAST_TOKEN {
            return Err(format!("the token after {was:?} is {is:?}, beyond the last"));
        }
        if is == Some(due) { Ok(()) } else { Err(format!("the token after {was:?} is {is:?}, not {due}")) }
    }

    /// Whether this is what the command that runs does to the lock. If so, it has done it.
    fn is_own(&mut self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> bool {
        let Some(running) = self.running.as_ref().filter(|running| running.name == *name && running.reply.is_none())
        else {
            return false;
        };
        let (client, request) = (running.client, running.request.clone());
        let identity = token_of(request.identity);
        let Outcome::Done { after: due, reply } = outcome(&request, &identity, before, now) else { return false };
        let door = self.door(name);
        let someone_is_first = door.first(now).is_some();
        let session_is_first = door.session.as_ref().is_some_and(Session::is_open);
        // A request by the same name, whose time is up, may be in line until the module gets to it.
        let same_is_first = due.holder().is_some_and(|held| door.may_be_next(&held.who, now) && door.waits(&held.who));
        if *before == Lock::Free && (someone_is_first || session_is_first || same_is_first) {
            return false; // It is someone else's turn.
        }
        if before.holder().is_some_and(|held| door.must_forfeit(&held.who)) {
            return false; // It is taken from its holder first, whoever that is.
        }
        let forfeit = before.holder().is_some_and(|held| door.is_forfeit(&held.who));
        // Its last hold: it waits no more in the other form, and who does gets the lock in the same step.
        let next_waits = door.line.iter().any(|place| place.is_present(now) && place.who.name != identity);
        if due == Lock::Free && (next_waits || *after != Lock::Free) {
            let Lock::Held(held) = after else { return false };
            if held.who.name == identity {
                return false; // It was taken from its holder before, and is another grant.
            }
            let (withdrawn, _) = door.withdraw(&identity);
            self.release(withdrawn);
            let door = self.door(name);
            door.end_session();
            if self.handed_over(name, &held.clone(), now).is_err() {
                return false;
            }
        } else if due == *after {
            self.carried_out(name, client, &request, before, &due, now);
        } else {
            return false;
        }
        if let Some(running) = &mut self.running {
            running.reply = Some(reply);
            // The module may not know yet that nobody was told of the grant that is released here.
            running.or_lost = forfeit && due == Lock::Free;
        }
        true
    }

    /// What a command's own change means beside the key.
    fn carried_out(&mut self, name: &Name, client: i64, request: &Request, before: &Lock, after: &Lock, now: Ms) {
        let door = self.door(name);
        let Lock::Held(held) = after else {
            door.end_session();
            door.void_grants();
            return;
        };
        if *before == Lock::Free {
            // A session of the same name may have taken the lock back, so that this is a repeat.
            match &mut door.session {
                Some(session) if session.may_have_taken(held, now) => session.doubt(),
                _ => door.end_session(),
            }
            door.void_grants();
            door.take_place(&held.who);
        }
        door.grants.iter_mut().for_each(Grant::tell);
        let remaining = held.until.map(|until| until - now);
        if let Some(session) = door.session.as_mut().filter(|session| session.who == held.who) {
            session.holds = held.holds;
            if let (Verb::Extend { .. }, Some(remaining)) = (&request.verb, remaining) {
                session.extend(remaining, now);
            }
        }
        if let Verb::Take(take) = &request.verb {
            if let Some(lease) = take.lease.filter(|_| take.session) {
                door.begin_session(held.who.clone(), held.holds, lease, client, now);
            }
        }
    }

    /// Whether a session takes its lock back.
    fn is_given_back(&mut self, name: &Name, held: &Held, now: Ms) -> Result<bool, String> {
        let door = self.door(name);
        let is_next = door.may_be_next(&held.who, now);
        let Some(session) = door.session.as_mut().filter(|session| session.who == held.who) else { return Ok(false) };
        if session.clients.is_empty() {
            return Ok(false);
        }
        // The session may have ended, and its holder may be the first in line now.
        if session.trust != Trust::Sure && is_next {
            self.undecided = Some((name.clone(), held.clone()));
            return Ok(true);
        }
        if session.is_doubtful() {
            // It may be a later session, with another lease.
            return Ok(held.until.is_some_and(|until| until <= now + session.lease));
        }
        if session.holds != held.holds {
            return Err(format!("{} holds are given back, not {}", held.holds, session.holds));
        }
        if held.until != Some(now + session.lease) {
            return Err(format!("the lease that is given back ends at {:?}", held.until));
        }
        (session.renew_at, session.trust) = (now + session.lease / 3, Trust::Sure);
        Ok(true)
    }

    /// Whether a lock went to a waiter or to the session of the same name, by what comes next.
    pub(super) fn decide(&mut self, name: &Name, held: &Held, next: &Note, now: Ms) -> Verdict {
        // A waiter may also be let go because its time is up; then the lease tells.
        let is_lease_of = |place: &&Place| held.until == place.lease().map(|lease| now + lease);
        let place = self.door(name).line.iter().find(|place| place.who == held.who).filter(is_lease_of);
        let waits = |tag: &Tag| place.is_some_and(|place| place.requests.iter().any(|request| request.tag == *tag));
        match next {
            Note::LetGo { tag } if waits(tag) => self.handed_over(name, held, now),
            _ => Ok(()),
        }
    }

    /// The lock goes to the first in line.
    fn handed_over(&mut self, name: &Name, held: &Held, now: Ms) -> Verdict {
        let door = self.doors.get_mut(name).ok_or("a lock without a door")?;
        // The lease ended by itself, and a connection is open.
        if let Some(session) = door.session.as_ref().filter(|session| session.is_open()) {
            return Err(format!("{:?} gets the lock of an open session of {:?}", held.who, session.who));
        }
        if !door.may_be_next(&held.who, now) {
            return Err(match door.first(now) {
                Some(first) => format!("{:?} overtakes {:?}", held.who, first.who),
                None => format!("{:?} gets the lock, and nobody waits", held.who),
            });
        }
        let who = held.who.clone();
        let first = door.line.iter().find(|place| place.who == who).ok_or("a place that is not there")?;
        let lease_end = first.lease().map(|lease| now + lease);
        if held.holds != 1 || held.until != lease_end {
            return Err(format!("{held:?} is granted, with a lease to {lease_end:?}"));
        }
        door.end_session();
        door.void_grants();
        if let Some(place) = door.take_place(&who) {
            let takes_part = |request: &&Waiting| request.session && !request.let_go;
            for request in place.requests.iter().filter(takes_part) {
                door.begin_session(who.clone(), 1, request.lease.unwrap_or_default(), request.client, now);
            }
            let open = place.requests.clone();
            let place = Place { requests: Vec::new(), ..place };
            door.grants.push(Grant { place, open, told: false, untold_at: None, is_overwritten: false });
        }
        self.grants += 1;
        Ok(())
    }

    /// The server lengthens the lease of a session.
    fn renewed(&mut self, name: &Name, was: &Held, is: &Held, now: Ms) -> Verdict {
        let in_timer = self.in_timer;
        let is_open = |session: &&mut Session| session.who == is.who && !session.clients.is_empty();
        let Some(session) = self.door(name).session.as_mut().filter(is_open).filter(|_| in_timer) else {
            return Err(format!("{was:?} becomes {is:?}, and nobody asked for it"));
        };
        if session.is_doubtful() {
            // It may be a later session, with another lease, which shows now.
            session.lease = is.until.map_or(session.lease, |until| until - now).min(session.lease);
        }
        let is_full = is.until == Some(now + session.lease);
        if was.holds != is.holds || is.until <= was.until || !is_full {
            return Err(format!("{was:?} is renewed to {is:?}, by {} ms", session.lease));
        }
        if now < session.renew_at && session.trust == Trust::Sure {
            return Err(format!("renewed at {now}, and that was due at {}", session.renew_at));
        }
        session.renew_at = now + session.lease / 3;
        session.trust = Trust::Sure;
        Ok(())
    }

    /// A lock is taken from its holder.
    fn forfeited(&mut self, name: &Name, who: &Who, now: Ms) -> Verdict {
        let kept_until = self.limits.kept_until(now);
        let door = self.door(name);
        if !door.is_forfeit(who) {
            return Err(format!("the lock is taken from {who:?}"));
        }
        door.forfeit(who, kept_until);
        Ok(())
    }
}
