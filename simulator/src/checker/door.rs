//! What the contract knows of one lock: who holds it, who waits, whose connection it belongs to.

use std::collections::BTreeSet;

use redis_lock::server::{ClientId, Entry, Tag};

use super::spec::{Held, Lock, Ms, Who};
use crate::request::Form;

/// One lock, as it should be.
#[derive(Clone, Default)]
pub struct Door {
    /// What the key held when a change was last complete.
    pub entry: Option<Entry>,
    /// A change of the module's that is not complete yet.
    pub draft: Option<Option<Entry>>,
    /// When the key came to be as it is.
    pub changed_at: Ms,
    /// In order of their turns, those that are away among them.
    pub line: Vec<Place>,
    pub session: Option<Session>,
    /// Grants of which somebody has not been told yet, the latest last.
    pub grants: Vec<Grant>,
    pub last_turn: u64,
}

/// A turn in the line.
#[derive(Clone)]
pub struct Place {
    pub who: Who,
    pub turn: u64,
    /// When somebody first waited here.
    pub since: Ms,
    /// Those that wait here now.
    pub requests: Vec<Waiting>,
    /// The leases of all copies since somebody waited here without a break.
    pub leases: Vec<Option<i64>>,
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
    pub session: bool,
    /// The module has let it go, and the server has not answered it yet.
    pub let_go: bool,
}

/// A lock that belongs to connections.
#[derive(Clone)]
pub struct Session {
    pub who: Who,
    pub holds: i64,
    pub lease: i64,
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
}

/// How sure it is that a session goes on after what somebody else has done to the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// It goes on.
    Sure,
    /// It goes on as soon as the module has read when the lease ends now. If that is before, it may take it for lost.
    Unread,
    /// It may have ended.
    Doubtful,
}

/// A lock that was handed over, until all who waited for it have been let go.
#[derive(Clone)]
pub struct Grant {
    pub place: Place,
    pub open: Vec<Waiting>,
    /// Somebody may know of it.
    pub told: bool,
    /// Since when it is certain that nobody does.
    pub untold_at: Option<Ms>,
    /// Somebody else has given the key to another meanwhile. Should the same name hold it again, it may be taken back.
    pub is_overwritten: bool,
}

impl Door {
    pub fn begin_session(&mut self, who: Who, holds: i64, lease: i64, client: ClientId, now: Ms) {
        match &mut self.session {
            Some(session) if session.who == who => {
                session.lease = session.lease.max(lease);
                session.renew_at = session.renew_at.min(now + lease / 3);
                session.holds = holds;
                session.clients.insert(client);
                session.ever.insert(client);
                session.closed_at = None;
            }
            _ => {
                let (clients, ever) = ([client].into(), [client].into());
                let renew_at = now + lease / 3;
                self.session = Some(Session {
                    who,
                    holds,
                    lease,
                    clients,
                    ever,
                    renew_at,
                    closed_at: None,
                    was_dead: false,
                    trust: Trust::Sure,
                });
            }
        }
    }

    /// Lets one request of a grant go.
    pub fn close_grant(&mut self, tag: Tag, told: bool, now: Ms) {
        for grant in &mut self.grants {
            let Some(index) = grant.open.iter().position(|request| request.tag == tag) else { continue };
            let request = grant.open.remove(index);
            // One who stays and was not told has no part in the session; without others that were, it is given up.
            let is_others = grant.told || !grant.open.is_empty();
            let session = self.session.as_mut().filter(|_| !told);
            if session.is_some_and(|session| session.leave(request.client, now)) && is_others {
                match &mut self.session {
                    // Whose connection closed in this round is in it until the module gets to it.
                    Some(session) if session.ever.len() > 1 => session.doubt(),
                    session => *session = None,
                }
            }
            if grant.open.is_empty() && !grant.told {
                grant.untold_at = Some(now);
            }
        }
        // Those that are over, but for the latest.
        let latest = self.grants.len().saturating_sub(1);
        let mut index = 0;
        self.grants.retain(|grant| {
            let keep = !grant.open.is_empty() || (index == latest && grant.untold_at.is_some());
            index += 1;
            keep
        });
    }

    /// Somebody else has given the lock to another.
    pub fn overwrite_grants(&mut self) {
        self.grants.iter_mut().for_each(|grant| grant.is_overwritten = true);
    }

    /// A grant that nobody knows of is not this lock's any more.
    pub fn void_grants(&mut self) {
        self.grants.iter_mut().for_each(|grant| grant.untold_at = None);
    }

    pub fn lock(&self, now: Ms) -> Lock {
        Lock::of(self.entry.as_ref(), now)
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
    pub fn first(&self, now: Ms) -> Option<&Place> {
        self.line.iter().find(|place| place.is_present(now))
    }

    /// Whether it may be this place's turn: nobody is ahead, but for those whose time is up and who may not know yet.
    pub fn may_be_next(&self, who: &Who, now: Ms) -> bool {
        let ahead = self.line.iter().take_while(|place| place.who != *who);
        let waits = self.line.iter().any(|place| place.who == *who && !place.requests.is_empty());
        waits && !ahead.into_iter().any(|place| place.is_present(now) && !place.vague)
    }

    /// Whether somebody waits at this place who was not let go.
    pub fn waits(&self, who: &Who) -> bool {
        let place = self.line.iter().find(|place| place.who == *who);
        place.is_some_and(|place| place.requests.iter().any(|request| !request.let_go))
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.line.iter().map(|place| place.requests.len()).sum()
    }

    /// Lets a request wait: at the place of its claim, or at the end. `grace_ms` is for how long places are kept.
    pub fn join(&mut self, who: Who, request: Waiting, now: Ms) {
        let index = match self.line.iter().position(|place| place.who == who) {
            Some(index) => index,
            None => {
                self.last_turn += 1;
                let turn = self.last_turn;
                self.line.push(Place {
                    who,
                    turn,
                    since: now,
                    requests: Vec::new(),
                    leases: Vec::new(),
                    kept_until: None,
                    vague: false,
                });
                self.line.len() - 1
            }
        };
        let place = &mut self.line[index];
        if place.requests.is_empty() {
            place.leases.clear();
        }
        place.kept_until = None;
        place.leases.push(request.lease);
        place.requests.push(request);
    }

    /// The place that a request waits at.
    pub fn place_of(&self, tag: Tag) -> Option<&Place> {
        self.line.iter().find(|place| place.requests.iter().any(|request| request.tag == tag))
    }

    /// Takes a request out; its place is kept until then, if at all.
    pub fn leave(&mut self, tag: Tag, kept_until: Option<Ms>) -> Option<Waiting> {
        let of = |place: &Place| place.requests.iter().position(|request| request.tag == tag);
        let at = self.line.iter().position(|place| of(place).is_some())?;
        let place = &mut self.line[at];
        let request = place.requests.remove(of(place)?);
        if place.requests.is_empty() {
            place.kept_until = kept_until;
            if kept_until.is_none() {
                self.line.remove(at);
            }
        }
        Some(request)
    }

    /// Drops places whose time was up before `surely`. Those of which it is up at `now` may still be there: the module has to
    /// get to it.
    pub fn drop_expired(&mut self, surely: Ms, now: Ms) {
        self.line.retain(|place| place.kept_until.is_none_or(|until| until >= surely));
        let over = self.line.iter_mut().filter(|place| place.kept_until.is_some_and(|until| until <= now));
        over.for_each(|place| place.vague = true);
    }

    /// Somebody needs room: a place that is away may go.
    pub fn make_room(&mut self) {
        self.line.iter_mut().filter(|place| place.requests.is_empty()).for_each(|place| place.vague = true);
    }

    /// Takes the place of a claim out.
    pub fn take_place(&mut self, who: &Who) -> Option<Place> {
        let index = self.line.iter().position(|place| place.who == *who)?;
        Some(self.line.remove(index))
    }

    /// Gives up all places of a name. Returns those that waited there, and whether there was a place.
    pub fn withdraw(&mut self, name: &[u8]) -> (Vec<Waiting>, bool) {
        let mut withdrawn = Vec::new();
        let mut had_place = false;
        for form in [Form::Mutex, Form::Reentrant] {
            if let Some(place) = self.take_place(&Who { form, name: name.to_vec() }) {
                withdrawn.extend(place.requests);
                had_place = true;
            }
        }
        (withdrawn, had_place)
    }

    /// Keeps the turn of a grant that was taken back.
    fn restore(&mut self, grant: Grant, kept_until: Option<Ms>) {
        if kept_until.is_none() {
            return;
        }
        let Place { who, turn, since, leases, vague, .. } = grant.place;
        let mut place = self.take_place(&who).unwrap_or(Place {
            who,
            turn,
            since,
            requests: Vec::new(),
            leases,
            kept_until,
            vague: false,
        });
        place.turn = turn;
        place.vague |= vague;
        let index = self.line.iter().position(|other| other.turn > turn).unwrap_or(self.line.len());
        self.line.insert(index, place);
    }

    /// Whether a lock may be taken from this holder: its connections are gone, or nobody can know that it was granted.
    pub fn is_forfeit(&self, who: &Who) -> bool {
        self.session.as_ref().is_some_and(|session| session.who == *who && session.clients.is_empty())
            || self.is_untold(&who.name)
    }

    /// Whether the module knows that it is.
    pub fn must_forfeit(&self, who: &Who) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.who == *who && session.clients.is_empty() && !session.is_doubtful())
    }

    /// Whether the lock was granted to this name last, and nobody can know.
    pub fn is_untold(&self, name: &[u8]) -> bool {
        self.grants.last().is_some_and(|grant| grant.place.who.name == name && grant.untold_at.is_some())
    }

    /// Takes the lock from this holder. The turn of a grant that nobody knew of is kept.
    pub fn forfeit(&mut self, who: &Who, kept_until: Option<Ms>) {
        // A connection that closes in the round of its grant gives up a session, and its turn if the server tells of that first.
        let had_session = self.session.take().is_some();
        let is_untold = |grant: &Grant| grant.place.who == *who && grant.untold_at.is_some();
        if self.grants.last().is_some_and(is_untold) {
            if let Some(mut grant) = self.grants.pop() {
                grant.place.vague |= had_session;
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
        match &mut self.session {
            Some(session) if is_dead(session) && is_settled && session.was_dead => self.session = None,
            Some(session) if is_dead(session) => {
                session.was_dead = true;
                session.doubt();
            }
            _ => {}
        }
    }

    /// Ends the session, if there is one.
    pub fn end_session(&mut self) {
        self.session = None;
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
        self.open.iter().any(|request| request.tag == tag && request.let_go)
    }

    /// Its holder hears that it is the holder.
    pub fn tell(&mut self) {
        (self.told, self.untold_at) = (true, None);
    }
}

impl Session {
    /// Whether it goes on for sure, with a connection.
    pub fn is_open(&self) -> bool {
        self.trust == Trust::Sure && !self.clients.is_empty()
    }

    /// Whether it may have ended.
    pub fn is_doubtful(&self) -> bool {
        self.trust == Trust::Doubtful
    }

    /// Whether it looks as if it had just taken its lock back.
    pub fn may_have_taken(&self, held: &Held, now: Ms) -> bool {
        let is_full = held.until == Some(now + self.lease) && held.holds == self.holds;
        self.who == held.who && is_full && !self.clients.is_empty()
    }

    /// It may have ended from now on.
    pub fn doubt(&mut self) {
        self.trust = Trust::Doubtful;
    }

    /// EXTEND has set its lease to so many milliseconds.
    pub fn extend(&mut self, lease: i64, now: Ms) {
        self.lease = lease.max(100);
        // As if the lease had begun earlier.
        self.renew_at = now + lease - self.lease + self.lease / 3;
    }

    /// A connection has nothing to do with it any more. Returns whether that was the last one.
    pub fn leave(&mut self, client: ClientId, now: Ms) -> bool {
        let is_last = self.clients.remove(&client) && self.clients.is_empty();
        if is_last {
            self.closed_at = Some(now);
        }
        is_last
    }
}

impl Place {
    /// Whether somebody waits here whose time is not up.
    pub fn is_present(&self, now: Ms) -> bool {
        self.requests.iter().any(|request| !request.is_over(now))
    }

    /// The lease that all copies get: the longest, and none is the longest; but with a session there is one.
    pub fn lease(&self) -> Option<i64> {
        let in_session = self.requests.iter().any(|request| request.session && !request.let_go);
        let longest = self.leases.iter().copied().flatten().max();
        if !in_session && self.leases.contains(&None) { None } else { longest }
    }
}
