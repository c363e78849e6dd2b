//! Each change of a lock by the module must follow from the contract.

use redis_lock::server::Entry;

use super::lock_model::{Grant, QueueEntry, Session};
use super::spec::{Held, Lock, Ms, Outcome, Who, is_counter, number};
use super::{Checker, LAST_TOKEN, Name, Verdict};
use crate::request::{Form, Request, Verb, token_of};

impl Checker {
    /// The module has changed a key.
    pub(super) fn changed(&mut self, name: &Name, now: Ms) -> Verdict {
        let model = self.model(name);
        let Some(draft) = model.draft.take() else { return Ok(()) };
        let before = model.lock(now);
        let previous = std::mem::replace(&mut model.entry, draft);
        model.changed_at = now;
        model.end_delay();
        model.is_counted |= before == Lock::Free;
        self.note_freed(name, previous.as_ref());
        if self.running.as_ref().is_some_and(|running| is_counter(&name.1, &running.request)) {
            return self.drawn(name, previous.as_ref(), now);
        }
        let after = self.model(name).lock(now);
        if matches!(after, Lock::Shared(_)) || matches!(before, Lock::Shared(_)) {
            self.check_members(name, previous.as_ref(), now)?;
        }
        self.check_grant(name, &before, &after, now)?;
        if before.may_be_shared() && after.may_be_shared() {
            return self.shares_changed(name, &before, &after, now);
        }
        if self.is_own(name, &before, &after, now) {
            return Ok(());
        }
        if before == after && !after.holder().is_some_and(|held| self.is_regranted(name, held, now)) {
            self.left_unchanged(name, &after, now);
            return Ok(());
        }
        let holder = after.holders().pop();
        if let (Lock::Held(was), Some(is)) = (&before, &holder) {
            if self.begins_grace(name, was, is, now)? {
                return Ok(());
            }
        }
        match (&before, &holder) {
            (Lock::Free, Some(held)) if self.is_given_back(name, held, now)? => Ok(()),
            (Lock::Free, Some(held)) => self.handed_over(name, held, &before, now),
            (Lock::Held(was), Some(is)) if was.who == is.who && !self.is_regranted(name, is, now) => {
                self.renewed(name, was, is, now)
            }
            (Lock::Held(was), _) => {
                self.forfeited(name, &was.who, holder.as_ref().map(|held| &held.who), now)?;
                match &holder {
                    Some(held) => self.handed_over(name, held, &Lock::Free, now),
                    None if self.must_not_publish() || self.suspension.may_be() => Ok(()),
                    None => match self.model(name).first(now) {
                        Some(first) => Err(format!("{:?} waits, and the free lock is not granted", first.who)),
                        None => Ok(()),
                    },
                }
            }
            _ => Err(format!("{before:?} becomes {after:?}")),
        }
    }

    /// Returns whether the module may revoke the lock of this holder, and a waiter of the same name is the next.
    fn is_regranted(&mut self, name: &Name, held: &Held, now: Ms) -> bool {
        let kept_until = self.limits.kept_until(now);
        let model = self.model(name);
        model.is_forfeit(&held.who) && model.without(&held.who, kept_until).may_be_next(&held.who, now)
    }

    /// A fencing token was drawn.
    fn drawn(&mut self, name: &Name, previous: Option<&Entry>, now: Ms) -> Verdict {
        let previous = previous.filter(|entry| !entry.is_over(now));
        let entry = self.model(name).entry.as_ref();
        if previous.and_then(|entry| entry.expiry) != entry.and_then(|entry| entry.expiry) {
            return Err(format!("a counter does not keep its expiry: {previous:?}, then {entry:?}"));
        }
        let (was, is) = (number(previous), number(entry));
        if previous.is_some() && was.is_none() {
            return Err(format!("a token is drawn from {previous:?}"));
        }
        let Some(running) = &mut self.running else { return Ok(()) };
        running.reply = is;
        let (lock, holder) = (running.name.clone(), token_of(running.request.identity));
        self.model(&lock)
            .grants
            .iter_mut()
            .filter(|grant| grant.entry.who.name == holder)
            .for_each(Grant::mark_notified);
        // Simulated clocks have no parts of milliseconds.
        let due = was.map_or(now * 1000, |was| was.saturating_add(1).max(now * 1000));
        if due > LAST_TOKEN {
            return Err(format!("the token after {was:?} is {is:?}, beyond the last"));
        }
        if is == Some(due) { Ok(()) } else { Err(format!("the token after {was:?} is {is:?}, not {due}")) }
    }

    /// Returns whether the running command has made this change. If so, records that.
    pub(super) fn is_own(&mut self, name: &Name, before: &Lock, after: &Lock, now: Ms) -> bool {
        let Some(running) = self.running.as_ref().filter(|running| running.name == *name && running.reply.is_none())
        else {
            return false;
        };
        let (client, request) = (running.client, running.request.clone());
        if before == after && !matches!(request.verb, Verb::Extend { .. }) {
            return false; // Only EXTEND writes a lock that it leaves unchanged.
        }
        let identity = token_of(request.identity);
        let silent = self.must_not_publish() || self.suspension.may_be();
        let Outcome::Done { after: due, reply, .. } = self.outcome(&request, before, now) else { return false };
        let model = self.model(name);
        let someone_is_first = model.first(now).is_some();
        let session_is_first = model.has_session_without(before);
        let of_caller = |lock: &Lock| lock.holders().into_iter().find(|held| held.who.name == identity);
        let own = of_caller(&due);
        // A waiter of the same name that has timed out may be in the queue until the module removes it.
        let same_is_first = own.as_ref().is_some_and(|own| model.may_be_next(&own.who, now) && model.waits(&own.who));
        let is_new = own.as_ref().is_some_and(|own| !before.is_held_by(&own.who));
        if is_new && (someone_is_first || session_is_first || same_is_first) {
            return false; // The lock is due to a session or to a waiter.
        }
        let was_own = of_caller(before);
        let must_forfeit = was_own.as_ref().is_some_and(|held| model.must_forfeit(held, now));
        if must_forfeit || was_own.is_some_and(|held| model.revoked.contains(&held.who)) {
            return false; // The module revokes the lock first.
        }
        // The last hold is released. The token's waiters withdraw, and another waiter gets the lock in the same step.
        let next_waits = model.queue.iter().any(|entry| entry.is_attached(now) && entry.who.name != identity);
        let is_handed_on = before.holder().is_some() && due == Lock::Free;
        if is_handed_on && (next_waits && !silent || *after != Lock::Free) {
            let Some(held) = after.holders().pop() else { return false };
            if held.who.name == identity {
                return false; // The module has revoked the lock, and this is another grant.
            }
            let withdrawn = model.withdraw(&identity);
            self.release(name, &identity, withdrawn.and_then(|entry| entry.request));
            self.model(name).end_sessions();
            if self.handed_over(name, &held, &Lock::Free, now).is_err() {
                return false;
            }
        } else if due == *after {
            self.carried_out(name, client, &request, before, &due, now);
        } else {
            return false;
        }
        if let Some(running) = &mut self.running {
            running.reply = Some(reply);
        }
        true
    }

    /// Records the other effects of a command that has changed the lock.
    fn carried_out(&mut self, name: &Name, client: i64, request: &Request, before: &Lock, after: &Lock, now: Ms) {
        let identity = token_of(request.identity);
        let of_caller = |lock: &Lock| lock.holders().into_iter().find(|held| held.who.name == identity);
        let model = self.model(name);
        let Some(held) = of_caller(after) else {
            of_caller(before).iter().for_each(|was| model.start_over(&was.who));
            model.is_being_shared = before.holder().is_none();
            // The last RELEASE of a token also withdraws its waiter.
            let withdrawn = model.withdraw(&identity);
            return self.release(name, &identity, withdrawn.and_then(|entry| entry.request));
        };
        if !before.is_held_by(&held.who) {
            // A session of the same name may have taken the lock back. Then this request is a repeat, except with NX.
            let is_strict = matches!(&request.verb, Verb::Take(take) if take.strict);
            let has_session = self.keeps_session(name, &held.who);
            let model = self.model(name);
            match model.session_of_mut(&held.who).filter(|_| has_session && !is_strict) {
                Some(session) => session.mark_uncertain(),
                None => model.start_over(&held.who),
            }
            model.void_grants(&held.who);
            model.withdraw(&identity);
        }
        let model = self.model(name);
        let are_notified = |grant: &&mut Grant| !grant.entry.who.can_hold_with(&held.who);
        model.grants.iter_mut().filter(are_notified).for_each(Grant::mark_notified);
        let remaining = held.until.map(|until| until - now);
        if let Some(session) = model.session_of_mut(&held.who) {
            session.holds = held.holds;
            if let (Verb::Extend { .. }, Some(remaining)) = (&request.verb, remaining) {
                session.extend(remaining, now);
            }
        }
        if let Verb::Take(take) = &request.verb {
            if let Some(terms) = take.terms() {
                model.begin_session(held.who.clone(), held.holds, terms, client, now);
            }
        }
    }

    /// Returns whether a session takes its lock back. If its holder is the first waiter, the lock may have gone to the waiter.
    pub(super) fn is_given_back(&mut self, name: &Name, held: &Held, now: Ms) -> Result<bool, String> {
        if self.is_given_back_for_grace(name, held, now) {
            return Ok(true);
        }
        let (is_announced, keeps_place) = (self.is_announced(name, &held.who), self.keeps_place(name, &held.who));
        let limits = self.limits;
        let model = self.model(name);
        let has_lease_of = |entry: &QueueEntry| held.until == limits.lease_for(entry).map(|lease| now + lease);
        let has_waiters_lease = model.queue.iter().find(|entry| entry.who == held.who).is_some_and(has_lease_of);
        let is_next = model.may_be_next(&held.who, now);
        let Some(session) = model.session_of_mut(&held.who).filter(|session| !session.is_closed()) else {
            return Ok(false);
        };
        let may_be_grant = is_next && !keeps_place && (has_waiters_lease || !limits.may_renew(session, held, now));
        if is_announced || !session.is_sure && may_be_grant {
            return Ok(false);
        }
        if session.holds != held.holds {
            return Err(format!("{} holds are given back, not {}", held.holds, session.holds));
        }
        if !limits.may_renew(session, held, now) {
            return Err(format!("the lease that is given back ends at {:?}", held.until));
        }
        session.show_lease(held, now);
        session.is_sure = true;
        Ok(true)
    }

    /// The lock, whose state was `before`, is granted to the first waiter.
    pub(super) fn handed_over(&mut self, name: &Name, held: &Held, before: &Lock, now: Ms) -> Verdict {
        let (is_notified, limits) = (self.notified_before(name, held)?, self.limits);
        let model = self.models.get_mut(name).ok_or("a lock without a door")?;
        // The lease of the session has ended, and a connection is open.
        let is_passed_over = |session: &&Session| session.is_open() && !before.is_held_by(&session.who);
        if let Some(session) = model.sessions.iter().find(is_passed_over) {
            return Err(format!("{:?} gets the lock of an open session of {:?}", held.who, session.who));
        }
        if !model.may_be_next(&held.who, now) {
            return Err(match model.first(now) {
                Some(first) => format!("{:?} overtakes {:?}", held.who, first.who),
                None => format!("{:?} gets the lock without a request", held.who),
            });
        }
        let who = held.who.clone();
        let first = model.queue.iter().find(|queue_entry| queue_entry.who == who).ok_or("a place that is not there")?;
        let lease_end = limits.lease_for(first).map(|lease| now + lease);
        if held.holds != 1 || held.until != lease_end {
            return Err(format!("{held:?} is granted, with a lease to {lease_end:?}"));
        }
        if !first.fits(before) {
            return Err(format!("{held:?} is granted beside {before:?}, up to {:?}", first.limit()));
        }
        model.start_over(&who);
        model.is_being_shared |= who.form == Form::Share;
        let entry = model.withdraw(&who.name);
        if let Some((entry, request)) = entry.and_then(|entry| Some((entry.clone(), entry.request?))) {
            self.slow_log.grant(request.tag, model.still_waiting(), now);
            if let Some(terms) = request.session.filter(|_| !request.is_unblocked) {
                model.begin_session(who, 1, limits.cut_terms(terms), request.client, now);
            }
            if request.channel.is_none() {
                let (unnotified_since, is_overwritten) = (None, false);
                model.grants.push(Grant { entry, is_open: true, is_notified, unnotified_since, is_overwritten });
            }
        }
        self.grants += 1;
        Ok(())
    }

    /// The server lengthens the lease of a session.
    pub(super) fn renewed(&mut self, name: &Name, was: &Held, is: &Held, now: Ms) -> Verdict {
        if self.suspension.refuses_leases() {
            return Err(format!("{was:?} becomes {is:?}, and no lease is lengthened: {:?}", self.suspension));
        }
        let (in_timer, limits) = (self.in_timer, self.limits);
        let is_open = |session: &&mut Session| in_timer && !session.is_closed();
        let Some(session) = self.model(name).session_of_mut(&is.who).filter(is_open) else {
            return Err(format!("{was:?} becomes {is:?} without a request"));
        };
        let is_full = limits.may_renew(session, is, now);
        if was.holds != is.holds || is.until <= was.until || !is_full {
            return Err(format!("{was:?} is renewed to {is:?}, by {} ms", session.lease));
        }
        if now < session.renew_at && !session.may_be_early {
            return Err(format!("renewed at {now}, and that was due at {}", session.renew_at));
        }
        session.show_lease(is, now);
        session.is_sure = true;
        Ok(())
    }

    /// The module revokes the lock of a holder. In the same step, `next` gets it.
    pub(super) fn forfeited(&mut self, name: &Name, who: &Who, next: Option<&Who>, now: Ms) -> Verdict {
        let kept_until = self.turn_kept_until(name, who, next, now);
        let model = self.model(name);
        if !model.may_be_forfeit(who) {
            return Err(format!("the lock is taken from {who:?}"));
        }
        model.check_no_grace(who, now)?;
        let had_session = model.session_of(who).is_some();
        model.forfeit(who, kept_until);
        if had_session && kept_until.is_none() {
            // A RELEASE of the token withdraws the entry, and its reply says whether there was one.
            self.running.iter_mut().for_each(|running| running.may_have_waited = true);
        }
        Ok(())
    }

    /// Returns until when the turn of a grant is kept that is revoked, before `next` gets the lock.
    ///
    /// A connection that closes in the iteration of its grant ends a session, too. The turn is lost if the server announces the
    /// close first.
    pub(super) fn turn_kept_until(&self, name: &Name, who: &Who, next: Option<&Who>, now: Ms) -> Option<Ms> {
        let (kept_until, model) = (self.limits.kept_until(now), self.models.get(name)?);
        let after = model.without(who, kept_until);
        let is_next = || next.is_none_or(|next| after.may_be_next(next, now));
        let has_turn = || next == Some(who) || self.has_turn_at_end(name, &after, who);
        kept_until.filter(|_| model.session_of(who).is_none() || is_next() && has_turn())
    }
}
