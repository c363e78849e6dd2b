//! What the contract knows of one lock: who holds it, who waits, whose connection it belongs to.

use std::collections::BTreeSet;

use redis_lock::server::{ClientId, Entry, Tag, Value};

use super::fairness::Delays;
use super::limits::Limits;
use super::spec::{Held, Lock, Ms, Who, end_of};
use crate::request::Form;

/// One lock, as it should be.
#[derive(Clone, Default)]
pub struct LockModel {
    /// What the key held when a change was last complete.
    pub entry: Option<Entry>,
    /// A change of the module's that is not complete yet.
    pub draft: Option<Option<Entry>>,
    /// When the key came to be as it is.
    pub changed_at: Ms,
    /// In order of their turns, those that are away among them.
    pub queue: Vec<QueueEntry>,
    /// One at most, but for shares: each has a session of its own.
    pub sessions: Vec<Session>,
    /// The requests of the place that is first in line, and since when they are, as seen at the end of a round.
    pub first_since: Option<(Vec<Tag>, Ms)>,
    /// Somebody was given a share, or gave one up, since the last step ended: what that makes room for is due.
    pub is_being_shared: bool,
    /// Somebody has left the line since then: whom that one held up may be served in the next round.
    pub lags: bool,
    /// Others have changed the shares, and the module has not looked yet which of them are left.
    pub is_touched: bool,
    /// Its leases are as the module has set them, under the limit that is in force.
    pub is_counted: bool,
    /// Grants of which somebody has not been told yet, the latest last.
    pub grants: Vec<Grant>,
    pub last_turn: u64,
    /// Holders of shares whose grant nobody knows of, and that were overwritten: the module takes such a share back if it is there
    /// again, because others have moved it away and back.
    pub unknown: Vec<Who>,
    /// For how long what is due for it was not done.
    pub delays: Delays,
}

/// A turn in the line.
#[derive(Clone)]
pub struct QueueEntry {
    pub who: Who,
    pub turn: u64,
    /// When somebody first waited here.
    pub since: Ms,
    /// Those that wait here now.
    pub requests: Vec<Waiting>,
    /// Until when it is kept, while nobody waits here.
    pub kept_until: Option<Ms>,
    /// It may have had to make room, and its turn may be a later one.
    pub vague: bool,
}

/// A request that waits.
#[derive(Clone)]
pub struct Waiting {
    pub tag: Tag,
    pub client: ClientId,
    pub deadline: Option<Ms>,
    pub lease: Option<i64>,
    /// The limit of shares.
    pub limit: Option<i64>,
    /// The lease of the session that it asks for.
    pub session: Option<i64>,
    /// The module has let it go, and the server has not answered it yet.
    pub is_unblocked: bool,
    /// Where the end of the wait is told, if not by the reply.
    pub channel: Option<Vec<u8>>,
    /// The server may be unable to go on with it.
    pub may_be_aborted: bool,
    /// Since when it surely is.
    pub aborted_since: Option<Ms>,
}

/// A lock that belongs to connections.
#[derive(Clone)]
pub struct Session {
    pub who: Who,
    pub holds: i64,
    pub lease: i64,
    /// It may have been cut to this by a limit of leases that was in force meanwhile.
    pub lowest: i64,
    pub clients: BTreeSet<ClientId>,
    /// Those that are closed since, too.
    pub ever: BTreeSet<ClientId>,
    /// When its lease is to be renewed, and not before.
    pub renew_at: Ms,
    /// When its last connection closed.
    pub closed_at: Option<Ms>,
    /// A round of the loop has ended since it had nothing to give up.
    pub was_dead: bool,
    pub trust: Trust,
    /// It was doubtful once: it may be a later session by the same name, to which only those of its connections belong that
    /// came last.
    pub may_be_later: bool,
}

/// How sure it is that a session goes on after what somebody else has done to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// It goes on.
    Sure,
    /// It goes on as soon as the module has read when the lease ends now. If that is before, it may take it for lost.
    Unread,
    /// It may have ended.
    Uncertain,
}

/// A lock that was handed over, until all who waited for it have been let go.
#[derive(Clone)]
pub struct Grant {
    pub queue_entry: QueueEntry,
    pub open: Vec<Waiting>,
    /// Somebody may know of it.
    pub is_notified: bool,
    /// The connections that were told by message.
    pub pubsub_clients: Vec<ClientId>,
    /// Since when it is certain that nobody does.
    pub unnotified_since: Option<Ms>,
    /// Somebody else has given the key to another meanwhile. Should the same name hold it again, it may be taken back.
    pub is_overwritten: bool,
}

impl LockModel {
    pub fn begin_session(&mut self, who: Who, holds: i64, lease: i64, client: ClientId, now: Ms) {
        // A lock belongs to connections as a whole, or share by share.
        self.sessions.retain(|session| session.who == who || session.can_hold_with(&who));
        match self.sessions.iter_mut().find(|session| session.who == who) {
            Some(session) => {
                session.lease = session.lease.max(lease);
                session.lowest = session.lowest.max(lease);
                session.renew_at = session.renew_at.min(now + lease / 3);
                session.holds = holds;
                session.clients.insert(client);
                session.ever.insert(client);
                session.closed_at = None;
            }
            None => {
                let (clients, ever) = ([client].into(), [client].into());
                let renew_at = now + lease / 3;
                self.sessions.push(Session {
                    who,
                    holds,
                    lease,
                    lowest: lease,
                    clients,
                    ever,
                    renew_at,
                    closed_at: None,
                    was_dead: false,
                    trust: Trust::Sure,
                    may_be_later: false,
                });
            }
        }
    }

    /// Lets one request of a grant go.
    pub fn close_grant(&mut self, tag: Tag, is_notified: bool, now: Ms) {
        let all: Vec<Who> = self.grants.iter().map(|grant| grant.queue_entry.who.clone()).collect();
        // Whether no grant since excludes it.
        let is_latest = |number: usize| all[number + 1..].iter().all(|who| who.can_hold_with(&all[number]));
        for (number, grant) in self.grants.iter_mut().enumerate() {
            let Some(index) = grant.open.iter().position(|request| request.tag == tag) else { continue };
            let request = grant.open.remove(index);
            // One who stays and was told by neither reply nor message has no part in the session; without others that were, it is given up.
            let is_others = grant.is_notified || !grant.open.is_empty();
            let is_unknown = !is_notified && !grant.pubsub_clients.contains(&request.client);
            let of_grant = |session: &Session| session.who == grant.queue_entry.who;
            // A session that began with a later grant is another one.
            let index = self.sessions.iter().position(of_grant).filter(|_| is_unknown && is_latest(number));
            if let Some(index) = index.filter(|&at| self.sessions[at].detach(request.client, now) && is_others) {
                // Whose connection closed in this round is in it until the module gets to it.
                if self.sessions[index].ever.len() > 1 {
                    self.sessions[index].mark_uncertain();
                } else {
                    self.sessions.remove(index);
                }
            }
            if grant.open.is_empty() && !grant.is_notified {
                grant.unnotified_since = Some(now);
            }
        }
        // Those that are over, but for the latest.
        let mut number = 0;
        self.grants.retain(|grant| {
            number += 1;
            !grant.open.is_empty() || is_latest(number - 1) && grant.unnotified_since.is_some()
        });
    }

    /// Somebody else has given the lock to another.
    pub fn overwrite_grants(&mut self, was: &Lock, is: &Lock) {
        let is_gone = |grant: &&mut Grant| ![was, is].iter().all(|lock| lock.is_held_by(&grant.queue_entry.who));
        self.grants.iter_mut().filter(is_gone).for_each(|grant| grant.is_overwritten = true);
    }

    /// The lock, or a share, goes to this one, or away from it: of its earlier session, and of a grant that nobody knows of,
    /// nothing is left; nor of those that cannot be beside it.
    pub fn start_over(&mut self, who: &Who) {
        self.sessions.retain(|session| session.can_hold_with(who));
        self.unknown.retain(|other| other != who);
        self.void_grants(who);
    }

    /// The same of grants alone.
    pub fn void_grants(&mut self, who: &Who) {
        let is_over = |grant: &&mut Grant| !grant.queue_entry.who.can_hold_with(who);
        for grant in self.grants.iter_mut().filter(is_over) {
            if grant.unnotified_since.take().is_some()
                && grant.queue_entry.who.form == Form::Share
                && grant.queue_entry.who != *who
            {
                self.unknown.push(grant.queue_entry.who.clone());
            }
        }
    }

    pub fn session_of(&self, who: &Who) -> Option<&Session> {
        self.sessions.iter().find(|session| session.who == *who)
    }

    pub fn session_of_mut(&mut self, who: &Who) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.who == *who)
    }

    /// The latest grant to this one, if it was not followed by another that took the lock from it.
    pub fn grant_to(&self, who: &Who) -> Option<&Grant> {
        self.grants
            .iter()
            .rfind(|grant| !grant.queue_entry.who.can_hold_with(who))
            .filter(|grant| grant.queue_entry.who == *who)
    }

    pub fn lock(&self, now: Ms) -> Lock {
        Lock::of(self.entry.as_ref(), now)
    }

    /// Since when a lock that is shared has room for the first in line, if it has. Where the order of the line is not sure, that
    /// is left open.
    pub fn capacity_since(&self, now: Ms) -> Option<Ms> {
        let lock = self.lock(now);
        let queue_entry =
            self.first(now).filter(|queue_entry| matches!(lock, Lock::Shared(_)) && queue_entry.fits(&lock))?;
        if self.queue.iter().any(|queue_entry| queue_entry.vague) {
            return None;
        }
        let first_since = self.first_since.as_ref().filter(|(tags, _)| *tags == queue_entry.tags())?.1;
        let Value::SortedSet(members) = &self.entry.as_ref()?.value else { return None };
        let mut ends: Vec<_> = members.values().copied().collect();
        ends.sort_unstable();
        // So many had to pass before there was room.
        let excess = queue_entry.limit().map_or(0, |limit| (ends.len() + 1).saturating_sub(limit as usize));
        let expired_at = excess.checked_sub(1).and_then(|last| end_of(*ends.get(last)?)).map_or(Ms::MIN, |end| end + 1);
        Some(self.changed_at.max(first_since).max(expired_at))
    }

    /// Notes who is the first in line.
    pub fn note_first(&mut self, now: Ms) {
        let first = self.first(now).map(QueueEntry::tags);
        let is_same = |(tags, _): &(Vec<Tag>, Ms)| first.as_ref() == Some(tags);
        if !self.first_since.as_ref().is_some_and(is_same) {
            self.first_since = first.map(|tags| (tags, now));
        }
    }

    /// Whether members that have passed are still there.
    pub fn has_expired(&self, now: Ms) -> bool {
        match self.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::SortedSet(members)) => {
                members.values().any(|&score| end_of(score).is_some_and(|end| end < now))
            }
            _ => false,
        }
    }

    /// Since when the lock is free, if it is.
    pub fn free_since(&self, now: Ms) -> Option<Ms> {
        match &self.entry {
            None => Some(self.changed_at),
            Some(entry) if entry.is_over(now) => entry.expiry.map(|expiry| self.changed_at.max(expiry + 1)),
            Some(_) => None,
        }
    }

    /// The first place in line that somebody waits at whose time is not up.
    pub fn first(&self, now: Ms) -> Option<&QueueEntry> {
        self.queue.iter().find(|queue_entry| queue_entry.is_attached(now))
    }

    /// Whether it may be this place's turn: nobody is ahead, but for those whose time is up and who may not know yet.
    pub fn may_be_next(&self, who: &Who, now: Ms) -> bool {
        self.may_be_next_but_for(None, who, now)
    }

    /// The same when this name has given up its places.
    pub fn may_be_next_but_for(&self, withdrawn: Option<&[u8]>, who: &Who, now: Ms) -> bool {
        let ahead = self.queue.iter().take_while(|queue_entry| queue_entry.who != *who);
        let ahead = ahead.filter(|queue_entry| withdrawn.is_none_or(|withdrawn| queue_entry.who.name != *withdrawn));
        let waits = self.queue.iter().any(|queue_entry| queue_entry.who == *who && !queue_entry.requests.is_empty());
        waits && !ahead.into_iter().any(|queue_entry| queue_entry.is_attached(now) && !queue_entry.vague)
    }

    /// Whether somebody waits at this place who was not let go.
    pub fn waits(&self, who: &Who) -> bool {
        let queue_entry = self.queue.iter().find(|queue_entry| queue_entry.who == *who);
        queue_entry.is_some_and(|queue_entry| queue_entry.requests.iter().any(|request| !request.is_unblocked))
    }

    /// The requests that wait, in the order of the line.
    pub fn requests(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.iter().flat_map(|queue_entry| &queue_entry.requests)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.requests().count()
    }

    /// Lets a request wait: at the place of its claim, or at the end. `grace_ms` is for how long places are kept.
    pub fn join(&mut self, who: Who, request: Waiting, now: Ms) {
        let index = match self.queue.iter().position(|queue_entry| queue_entry.who == who) {
            Some(index) => index,
            None => {
                self.last_turn += 1;
                let turn = self.last_turn;
                self.queue.push(QueueEntry {
                    who,
                    turn,
                    since: now,
                    requests: Vec::new(),
                    kept_until: None,
                    vague: false,
                });
                self.queue.len() - 1
            }
        };
        let queue_entry = &mut self.queue[index];
        queue_entry.kept_until = None;
        queue_entry.requests.push(request);
    }

    /// The place that a request waits at.
    pub fn queue_entry_of(&self, tag: Tag) -> Option<&QueueEntry> {
        self.queue.iter().find(|queue_entry| queue_entry.requests.iter().any(|request| request.tag == tag))
    }

    /// Takes a request out; its place is kept until then, if at all.
    pub fn withdraw_request(&mut self, tag: Tag, kept_until: Option<Ms>) -> Option<Waiting> {
        let of = |queue_entry: &QueueEntry| queue_entry.requests.iter().position(|request| request.tag == tag);
        let at = self.queue.iter().position(|queue_entry| of(queue_entry).is_some())?;
        self.lags = true;
        let queue_entry = &mut self.queue[at];
        let request = queue_entry.requests.remove(of(queue_entry)?);
        if queue_entry.requests.is_empty() {
            queue_entry.kept_until = kept_until;
            if kept_until.is_none() {
                self.queue.remove(at);
            }
        }
        Some(request)
    }

    /// Drops places whose time was up before `surely`. Those of which it is up at `now` may still be there: the module has to
    /// get to it.
    pub fn drop_expired(&mut self, surely: Ms, now: Ms) {
        self.queue.retain(|queue_entry| queue_entry.kept_until.is_none_or(|until| until >= surely));
        let over = self.queue.iter_mut().filter(|queue_entry| queue_entry.kept_until.is_some_and(|until| until <= now));
        over.for_each(|queue_entry| queue_entry.vague = true);
    }

    /// Somebody needs room: a place that is away may go.
    pub fn free_capacity(&mut self) {
        self.queue
            .iter_mut()
            .filter(|queue_entry| queue_entry.requests.is_empty())
            .for_each(|queue_entry| queue_entry.vague = true);
    }

    /// Takes the place of a claim out.
    pub fn take_queue_entry(&mut self, who: &Who) -> Option<QueueEntry> {
        let index = self.queue.iter().position(|queue_entry| queue_entry.who == *who)?;
        Some(self.queue.remove(index))
    }

    /// Gives up all places of a name, but for one form. Returns those that waited there, and whether there was a place.
    pub fn withdraw(&mut self, name: &[u8], kept: Option<Form>) -> (Vec<Waiting>, bool) {
        let mut withdrawn = Vec::new();
        let mut had_queue_entry = false;
        for form in Form::ALL.into_iter().filter(|&form| Some(form) != kept) {
            if let Some(queue_entry) = self.take_queue_entry(&Who { form, name: name.to_vec() }) {
                withdrawn.extend(queue_entry.requests);
                (had_queue_entry, self.lags) = (true, true);
            }
        }
        (withdrawn, had_queue_entry)
    }

    /// Keeps the turn of a grant that was taken back.
    fn restore(&mut self, grant: Grant, kept_until: Option<Ms>) {
        if kept_until.is_none() {
            return;
        }
        let QueueEntry { who, turn, since, vague, .. } = grant.queue_entry;
        let mut queue_entry = self.take_queue_entry(&who).unwrap_or(QueueEntry {
            who,
            turn,
            since,
            requests: Vec::new(),
            kept_until,
            vague: false,
        });
        queue_entry.turn = turn;
        queue_entry.vague |= vague;
        let index = self.queue.iter().position(|other| other.turn > turn).unwrap_or(self.queue.len());
        self.queue.insert(index, queue_entry);
    }

    /// Whether a lock may be taken from this holder: its connections are gone, or nobody can know that it was granted.
    pub fn is_forfeit(&self, who: &Who) -> bool {
        self.session_of(who).is_some_and(|session| session.clients.is_empty()) || self.is_unnotified(who)
    }

    /// Whether it may be taken from this holder, should some of its connections have no part in it: that is as doubtful as the
    /// session.
    pub fn may_be_forfeit(&self, who: &Who) -> bool {
        let is_unsure = |session: &Session| session.is_uncertain() || session.may_be_later;
        let has_closed = |session: &Session| is_unsure(session) && session.ever.len() > session.clients.len();
        self.is_forfeit(who) || self.session_of(who).is_some_and(has_closed) || self.unknown.contains(who)
    }

    /// Whether the module knows that it is.
    pub fn must_forfeit(&self, who: &Who) -> bool {
        self.session_of(who).is_some_and(|session| session.clients.is_empty() && !session.is_uncertain())
    }

    /// Whether the lock was granted to this one last, and nobody can know.
    pub fn is_unnotified(&self, who: &Who) -> bool {
        self.grant_to(who).is_some_and(|grant| grant.unnotified_since.is_some())
    }

    /// What it is when the lock has been taken from this holder.
    pub fn without(&self, who: &Who, kept_until: Option<Ms>) -> Self {
        let mut after = self.clone();
        after.forfeit(who, kept_until);
        after
    }

    /// Takes the lock from this holder. The turn of a grant that nobody knew of is kept.
    pub fn forfeit(&mut self, who: &Who, kept_until: Option<Ms>) {
        // A connection that closes in the round of its grant gives up a session, and its turn if the server tells of that first.
        let had_session = self.sessions.iter().any(|session| !session.can_hold_with(who));
        self.sessions.retain(|session| session.can_hold_with(who));
        if self.is_unnotified(who) {
            if let Some(index) = self.grants.iter().rposition(|grant| grant.queue_entry.who == *who) {
                let mut grant = self.grants.remove(index);
                grant.queue_entry.vague |= had_session;
                self.restore(grant, kept_until);
            }
        }
    }

    /// A session without connections has nothing to give up when the lock is another's or nobody's. It goes when the module
    /// gets to it.
    pub fn drop_dead_session(&mut self, is_settled: bool) {
        // Whatever the time: the clock may be set back.
        let lock = self.lock(Ms::MIN);
        let is_dead = |session: &Session| session.clients.is_empty() && !lock.is_held_by(&session.who);
        self.sessions.retain(|session| !(is_dead(session) && is_settled && session.was_dead));
        for session in self.sessions.iter_mut().filter(|session| is_dead(session)) {
            session.was_dead = true;
            session.mark_uncertain();
        }
    }

    /// It may be that all sessions have ended.
    pub fn mark_sessions_uncertain(&mut self) {
        self.sessions.iter_mut().for_each(Session::mark_uncertain);
    }

    /// Ends the sessions, if there are any.
    pub fn end_sessions(&mut self) {
        self.sessions.clear();
    }
}

impl Waiting {
    /// Whether its time is up.
    pub fn is_over(&self, now: Ms) -> bool {
        self.deadline.is_some_and(|deadline| now > deadline)
    }
}

impl Grant {
    /// Whether a request had been let go, because its time was up, when the grant was made.
    pub fn is_over_for(&self, tag: Tag) -> bool {
        self.open.iter().any(|request| request.tag == tag && request.is_unblocked)
    }

    /// Its holder hears that it is the holder.
    pub fn mark_notified(&mut self) {
        (self.is_notified, self.unnotified_since) = (true, None);
    }
}

impl Session {
    /// Whether another one may hold the lock, too.
    pub fn can_hold_with(&self, who: &Who) -> bool {
        self.who.can_hold_with(who)
    }

    /// Whether it goes on for sure, with a connection.
    pub fn is_open(&self) -> bool {
        self.trust == Trust::Sure && !self.clients.is_empty()
    }

    /// Whether it may have ended.
    pub fn is_uncertain(&self) -> bool {
        self.trust == Trust::Uncertain
    }

    /// Whether it looks as if it had just taken its lock back.
    pub fn may_have_taken(&self, held: &Held, limits: &Limits, now: Ms) -> bool {
        let is_full = limits.may_renew(self, held, now) && held.holds == self.holds;
        self.who == held.who && is_full && !self.clients.is_empty()
    }

    /// Its lease is seen, which was renewed.
    pub fn show_lease(&mut self, held: &Held, now: Ms) {
        self.lease = held.until.map_or(self.lease, |until| until - now);
        self.lowest = self.lease;
    }

    /// It may have ended from now on.
    pub fn mark_uncertain(&mut self) {
        self.trust = Trust::Uncertain;
    }

    /// EXTEND has set its lease to so many milliseconds.
    pub fn extend(&mut self, lease: i64, now: Ms) {
        self.lease = lease.max(100);
        self.lowest = self.lease;
        // As if the lease had begun earlier.
        self.renew_at = now + lease - self.lease + self.lease / 3;
    }

    /// A connection has nothing to do with it any more. Returns whether that was the last one.
    pub fn detach(&mut self, client: ClientId, now: Ms) -> bool {
        let is_last = self.clients.remove(&client) && self.clients.is_empty();
        if is_last {
            self.closed_at = Some(now);
        }
        is_last
    }
}

impl QueueEntry {
    /// Whether somebody waits here whose time is not up.
    pub fn is_attached(&self, now: Ms) -> bool {
        self.requests.iter().any(|request| !request.is_over(now))
    }

    /// The copies that count: those that still wait. If all have been let go, the last of them count.
    fn copies(&self) -> impl Iterator<Item = &Waiting> {
        let all_unblocked = self.requests.iter().all(|request| request.is_unblocked);
        self.requests.iter().filter(move |request| all_unblocked || !request.is_unblocked)
    }

    /// The lease that all copies get: the longest, and none is the longest; but with a session or a message there is one.
    pub fn lease(&self) -> Option<i64> {
        let needs_lease = |request: &Waiting| request.session.is_some() || request.channel.is_some();
        let longest = self.copies().filter_map(|request| request.lease).max();
        let has_none = self.copies().any(|request| request.lease.is_none());
        if has_none && !self.copies().any(needs_lease) { None } else { longest }
    }

    fn tags(&self) -> Vec<Tag> {
        self.copies().map(|request| request.tag).collect()
    }

    /// The smallest limit of all copies.
    pub fn limit(&self) -> Option<i64> {
        self.copies().filter_map(|request| request.limit).min()
    }

    /// Whether a lock like this has room for those who wait here.
    pub fn fits(&self, lock: &Lock) -> bool {
        lock.has_capacity(self.who.form, self.limit())
    }
}
