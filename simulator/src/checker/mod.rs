//! Checks what a node does against the contract, note by note.
//!
//! The checker has a model of its own for each lock: a naive one, that searches lists from the front. It follows the journal
//! of the node and says what is wrong the moment that it is seen.

mod door;
mod liveness;
mod settle;
mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use redis_lock::server::{ClientId, Entry, Keyspace, Note, Reply, ServerKind, Tag, Value, Writer, slot_of};

use crate::request::{Request, Verb, counter_of, key_of, token_of};
use crate::step::SlotFate;
use door::{Door, Grant, Session, Waiting};
use spec::{Held, Lock, Ms, Outcome, Who, outcome};

/// What stands in the module's way, as far as the contract cares.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Now, by the node's clock.
    pub now: Ms,
    /// Since when the node may write of its own accord, and its clock runs evenly; `None`: it may not.
    pub writable_since: Option<Ms>,
    /// Since when its loop turns, and its clock runs evenly.
    pub turning_since: Ms,
}

/// What is wrong.
pub type Verdict = Result<(), String>;

/// The name of a lock.
type Name = (i32, Rc<[u8]>);

/// What follows one node, as long as it is a master.
pub struct Checker {
    kind: ServerKind,
    doors: BTreeMap<Name, Door>,
    /// LOCK commands that were sent and not answered yet.
    asked: HashMap<Tag, Request>,
    /// The connections that sent them.
    senders: HashMap<Tag, ClientId>,
    /// The reply that must come next, of those that have run.
    replies: HashMap<Tag, Expected>,
    /// Requests that wait, with their lock.
    waiting: HashMap<Tag, Name>,
    /// Those that RELEASE, or CLIENT UNBLOCK, has taken out of the line: nil is due.
    released: HashSet<Tag>,
    /// Those that were to be answered at the end of the last round, and were not.
    owed: HashSet<Tag>,
    unblocked: HashSet<ClientId>,
    running: Option<Running>,
    /// A lock that goes to its session or to a waiter by the same name: it is the waiter's if that is let go next.
    undecided: Option<(Name, Held)>,
    in_timer: bool,
    /// How long a place is kept.
    grace_ms: Ms,
    /// The most waiters there may be.
    pub limit: usize,
    /// Slots that are not this node's, or not for sure.
    lost_slots: Vec<u8>,
    /// Those of them that are another node's.
    gone_slots: Vec<u8>,
    pub grants: u64,
    pub trace: bool,
}

/// A LOCK command that runs.
struct Running {
    tag: Tag,
    client: ClientId,
    name: Name,
    denies_blocking: bool,
    request: Request,
    /// The reply, once the command has done to the lock what it had to.
    reply: Option<i64>,
    /// The reply may also say that the lock was lost.
    or_lost: bool,
    /// It is a RELEASE, and has let somebody go who waited.
    withdrew: bool,
}

/// A reply that must come.
enum Expected {
    Integer(i64),
    IntegerOrLost(i64),
    Nil,
    Error(&'static str),
    NilOrError(&'static str),
    /// Any reply that is no error.
    Anything,
}

impl Checker {
    /// Follows a node from now on, with the keys that it has.
    pub fn new(kind: ServerKind, keyspace: &Keyspace, grace_ms: Ms) -> Self {
        let mut checker = Self {
            kind,
            doors: BTreeMap::new(),
            asked: HashMap::new(),
            senders: HashMap::new(),
            replies: HashMap::new(),
            waiting: HashMap::new(),
            released: HashSet::new(),
            owed: HashSet::new(),
            unblocked: HashSet::new(),
            running: None,
            undecided: None,
            in_timer: false,
            grace_ms,
            limit: usize::MAX,
            lost_slots: Vec::new(),
            gone_slots: Vec::new(),
            grants: 0,
            trace: false,
        };
        checker.begin_anew(keyspace);
        checker
    }

    /// Another process is the master, with these keys: nobody waits, and no connection is open.
    pub fn begin_anew(&mut self, keyspace: &Keyspace) {
        let entry = |(db, key, entry): (i32, &Rc<[u8]>, &Entry)| {
            ((db, Rc::clone(key)), Door { entry: Some(entry.clone()), ..Door::default() })
        };
        self.doors = keyspace.all().map(entry).collect();
        self.asked.clear();
        self.senders.clear();
        self.replies.clear();
        self.waiting.clear();
        self.released.clear();
        self.owed.clear();
        self.unblocked.clear();
        self.running = None;
        self.undecided = None;
        self.in_timer = false;
    }

    /// A request is on its way.
    pub fn asks(&mut self, tag: Tag, client: ClientId, request: Request) {
        self.asked.insert(tag, request);
        self.senders.insert(tag, client);
    }

    /// Every request of an open connection has been answered, or waits, or has been sent behind one that waits.
    ///
    /// # Errors
    /// One that has not.
    pub fn check_answered(&self) -> Verdict {
        let waiting: HashSet<_> = self.waiting.keys().filter_map(|tag| self.senders.get(tag)).collect();
        let is_open = |tag: &Tag| self.senders.get(tag).is_some_and(|client| !waiting.contains(client));
        match self.asked.iter().find(|(tag, _)| is_open(tag)) {
            Some((tag, request)) => Err(format!("{request}, number {tag}, was never answered")),
            None => Ok(()),
        }
    }

    /// How many requests wait for a lock.
    pub fn waiting_for(&self, db: i32, key: &[u8]) -> usize {
        self.doors.get(&(db, Rc::from(key))).map_or(0, Door::waiting)
    }

    /// The clock was set: a place whose time was up by the other time may be gone, or not.
    pub fn clock_was_set(&mut self) {
        self.doors.values_mut().for_each(Door::make_room);
    }

    /// A slot comes or goes, and what the module was about to do there may be void.
    pub fn moves_slot(&mut self, slot: u8, fate: SlotFate) {
        let was_lost = self.lost_slots.contains(&slot);
        self.lost_slots.retain(|&lost| lost != slot);
        if fate != SlotFate::Returns {
            self.lost_slots.push(slot);
        }
        self.gone_slots.retain(|&gone| gone != slot);
        if fate == SlotFate::Leaves {
            self.gone_slots.push(slot);
        }
        if !was_lost && fate == SlotFate::Returns {
            return; // It was here all the time.
        }
        for ((_, key), door) in &mut self.doors {
            if let Some(session) = door.session.as_mut().filter(|_| slot_of(key) == slot) {
                session.doubtful = true;
            }
        }
    }

    /// Whether there may be anything to do for the module of its own accord.
    pub fn has_work(&self) -> bool {
        let has_session = |door: &Door| door.session.as_ref().is_some_and(|session| !session.doubtful);
        !self.waiting.is_empty() || self.doors.values().any(has_session)
    }

    /// Follows one thing that has happened.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn follow(&mut self, note: &Note, weather: &Weather) -> Verdict {
        if self.trace {
            println!("{} {note:?}", weather.now);
        }
        let now = weather.now;
        if let Some((name, held)) = self.undecided.take() {
            self.decide(&name, &held, note, now)?;
        }
        match note {
            Note::Began { client, tag, db, denies_blocking } => {
                let Some(request) = self.asked.get(tag).cloned() else { return Ok(()) };
                let name = (*db, Rc::from(key_of(request.door)));
                let (client, denies_blocking) = (*client, *denies_blocking);
                self.door(&name).drop_expired(now);
                self.running = Some(Running {
                    tag: *tag,
                    client,
                    name,
                    denies_blocking,
                    request,
                    reply: None,
                    or_lost: false,
                    withdrew: false,
                });
            }
            Note::Ended { tag, blocked } => {
                if let Some(running) = self.running.take().filter(|running| running.tag == *tag) {
                    self.end(running, *blocked, now)?;
                }
            }
            Note::TimerBegan => self.in_timer = true,
            Note::TimerEnded => self.in_timer = false,
            Note::Wrote { db, key, entry, writer: Writer::Module } => {
                self.door(&(*db, Rc::clone(key))).draft = Some(entry.clone());
            }
            Note::Signalled { db, key } => return self.changed(&(*db, Rc::clone(key)), now),
            Note::Wrote { db, key, entry, writer } => {
                return self.changed_by_others(&(*db, Rc::clone(key)), entry.as_ref(), *writer, now);
            }
            Note::KeyspaceChanged { keyspace } => self.reload(keyspace, now),
            Note::Unblocked { client } => _ = self.unblocked.insert(*client),
            Note::Inner { tag, reply } => return self.replied(*tag, reply, now),
            Note::Replied { tag, reply, .. } => return self.replied(*tag, reply, now),
            Note::Sent { .. } | Note::LetGo { .. } => {}
            Note::Freed { tag } => self.freed(*tag, now),
            Note::Closed { client } => self.closed(*client, now),
            Note::RoleChanged => self.retire(),
            Note::Restarted => {}
            Note::Round => return self.check_time(weather),
        }
        Ok(())
    }

    fn door(&mut self, name: &Name) -> &mut Door {
        self.doors.entry(name.clone()).or_default()
    }

    /// A command has come to its end.
    fn end(&mut self, running: Running, blocked: bool, now: Ms) -> Verdict {
        let Running { tag, client, name, denies_blocking, request, reply, or_lost, withdrew } = running;
        let waiting = self.waiting.len();
        let limit = self.limit;
        let door = self.door(&name);
        if let Some(Some(draft)) = &door.draft {
            return Err(format!("a change that nobody is told of: {draft:?}"));
        }
        let lock = door.lock(now);
        let identity = token_of(request.identity);
        let come = outcome(&request, &identity, &lock, now);
        let expected = match (reply, come) {
            (Some(_), Outcome::Refused(code)) if matches!(request.verb, Verb::Fence) => {
                return Err(format!("{request} draws a token, and {code} is due"));
            }
            (Some(reply), _) if or_lost => Expected::IntegerOrLost(reply),
            (Some(reply), _) => Expected::Integer(reply),
            (None, Outcome::Done { after, reply }) if after == lock => {
                self.confirmed(&name, client, &request, reply);
                Expected::Integer(reply)
            }
            (None, Outcome::Done { after, .. }) => {
                return Err(format!("{request} should have made of {lock:?}: {after:?}"));
            }
            (None, Outcome::Contended) => match &request.verb {
                Verb::Take(take) if take.block.is_some() && !denies_blocking => {
                    if blocked {
                        if self.doors.values().map(Door::waiting).sum::<usize>() >= limit {
                            return Err(format!("{request} waits, and {limit} do already"));
                        }
                        let deadline = take.block.filter(|&ms| ms > 0).map(|ms| now + ms);
                        let (lease, session) = (take.lease, take.session);
                        let who = Who { form: take.form, name: identity };
                        self.make_room();
                        let door = self.door(&name);
                        door.join(who, Waiting { tag, client, deadline, lease, session });
                        self.waiting.insert(tag, name);
                        return Ok(());
                    }
                    if waiting < limit {
                        return Err(format!("{request} does not wait"));
                    }
                    Expected::Error("QUEUEFULL")
                }
                _ => Expected::Nil,
            },
            (None, Outcome::Refused(code)) => Expected::Error(code),
            (None, Outcome::Looked) => Expected::Anything,
        };
        if blocked {
            return Err(format!("{request} waits for {lock:?}"));
        }
        let expected = self.withdrawn(&name, &request, withdrew, expected);
        self.replies.insert(tag, expected);
        Ok(())
    }

    /// RELEASE takes its token out of the line.
    fn withdrawn(&mut self, name: &Name, request: &Request, withdrew: bool, expected: Expected) -> Expected {
        if !matches!(request.verb, Verb::Release { .. }) {
            return expected;
        }
        let code = match expected {
            Expected::Integer(0) | Expected::IntegerOrLost(0) => None,
            Expected::Error(code @ ("NOTHELD" | "NOTOWNER" | "WRONGTYPE")) => Some(code),
            other => return other,
        };
        let (withdrawn, had_place) = self.door(name).withdraw(&token_of(request.identity));
        let waited = withdrew || !withdrawn.is_empty();
        self.release(withdrawn);
        match code {
            None => expected,
            Some(_) if waited => Expected::Nil,
            // A place that is away may have made room for another.
            Some(code) if had_place => Expected::NilOrError(code),
            Some(code) => Expected::Error(code),
        }
    }

    /// Where there are as many places as there may be, any that is away may go.
    fn make_room(&mut self) {
        let places: usize = self.doors.values().map(|door| door.line.len()).sum();
        if places >= self.limit {
            self.doors.values_mut().for_each(Door::make_room);
        }
    }

    /// Those that waited at a place that was given up are due nil.
    fn release(&mut self, withdrawn: Vec<Waiting>) {
        for request in withdrawn {
            self.waiting.remove(&request.tag);
            self.released.insert(request.tag);
        }
    }

    /// The holder was told again that it is the holder; the key is as it was.
    fn confirmed(&mut self, name: &Name, client: ClientId, request: &Request, reply: i64) {
        let identity = token_of(request.identity);
        let door = self.door(name);
        door.grants.iter_mut().filter(|grant| grant.place.who.name == identity).for_each(Grant::tell);
        match &request.verb {
            Verb::Take(take) => {
                if let Some(lease) = take.lease.filter(|_| take.session) {
                    door.begin_session(Who { form: take.form, name: identity }, reply, lease, client);
                }
            }
            Verb::Extend { .. } => {
                if let Some(session) = door.session.as_mut().filter(|session| session.who.name == identity) {
                    session.lease = reply.max(100);
                }
            }
            _ => {}
        }
    }

    /// A reply was made.
    fn replied(&mut self, tag: Tag, reply: &Reply, now: Ms) -> Verdict {
        if *reply == Reply::Status("QUEUED") {
            return Ok(());
        }
        if let Some(expected) = self.replies.remove(&tag) {
            let request = self.asked.remove(&tag);
            let said = || request.as_ref().map(Request::to_string).unwrap_or_default();
            return if expected.is(reply) { Ok(()) } else { Err(format!("{} is answered {reply:?}", said())) };
        }
        if self.released.remove(&tag) {
            self.asked.remove(&tag);
            // The server may answer it in the module's place, even then.
            return if matches!(reply, Reply::Nil | Reply::Error(_)) {
                Ok(())
            } else {
                Err(format!("who was let go is answered {reply:?}"))
            };
        }
        let Some(name) = self.waiting.get(&tag).cloned() else {
            // The server has refused it, or it was answered inside a script.
            let refused = matches!(reply, Reply::Error(_));
            let known = self.asked.remove(&tag).is_some();
            return if refused || !known { Ok(()) } else { Err(format!("{reply:?} out of nowhere")) };
        };
        self.waiter_replied(&name, tag, reply, now)
    }

    fn waiter_replied(&mut self, name: &Name, tag: Tag, reply: &Reply, now: Ms) -> Verdict {
        let kept_until = now + self.grace_ms;
        let unblocked = &self.unblocked;
        let releasing = self
            .running
            .as_mut()
            .filter(|running| matches!(running.request.verb, Verb::Release { .. }) && running.name == *name);
        let door = self.doors.entry(name.clone()).or_default();
        let grant = door.grants.iter_mut().find(|grant| grant.open.iter().any(|request| request.tag == tag));
        match (grant, reply) {
            (Some(grant), Reply::Integer(1)) => grant.told = true,
            // Its time was up just before another one's turn came at the same place.
            (Some(grant), Reply::Nil) if grant.is_over_for(tag, now) => {
                let index = grant.open.iter().position(|request| request.tag == tag);
                let over = index.map(|index| grant.open.remove(index)).filter(|request| request.session);
                if over.is_some_and(|over| door.session.as_mut().is_some_and(|session| session.leave(over.client, now)))
                {
                    door.session = None;
                }
                self.waiting.remove(&tag);
            }
            // The server has answered it in the module's place, which Valkey says only when it frees the client.
            (Some(_), Reply::Error(_)) => {
                if !matches!(self.kind, ServerKind::Valkey8 | ServerKind::Valkey9) {
                    self.freed(tag, now);
                }
                return Ok(());
            }
            (None, Reply::Nil) => {
                let who = door.place_of(tag).map(|place| place.who.name.clone());
                let Some(request) = door.leave(tag, kept_until) else {
                    return Err("nil for a request that does not wait".to_owned());
                };
                let releasing = releasing.filter(|running| Some(token_of(running.request.identity)) == who);
                let is_late_enough = request.deadline.is_some_and(|deadline| now > deadline);
                if let Some(releasing) = releasing {
                    releasing.withdrew = true;
                } else if !is_late_enough && !unblocked.contains(&request.client) {
                    return Err(format!("nil before the time is up: {:?} at {now}", request.deadline));
                }
                self.waiting.remove(&tag);
            }
            (None, Reply::Error(_)) => {
                door.leave(tag, kept_until);
                self.waiting.remove(&tag);
            }
            (grant, reply) => {
                return Err(format!("a waiter is answered {reply:?}, granted: {}", grant.is_some()));
            }
        }
        self.asked.remove(&tag);
        Ok(())
    }

    /// A client that was blocked is free, or gone: it is told no more than it was.
    fn freed(&mut self, tag: Tag, now: Ms) {
        self.released.remove(&tag);
        let Some(name) = self.waiting.remove(&tag) else { return };
        let told = self.asked.remove(&tag).is_none();
        let kept_until = now + self.grace_ms;
        let door = self.doors.entry(name).or_default();
        door.leave(tag, kept_until);
        door.close_grant(tag, told, now);
    }

    /// A connection is closed.
    fn closed(&mut self, client: ClientId, now: Ms) {
        let of_client = |requests: &[Waiting]| {
            requests.iter().filter(|request| request.client == client).map(|request| request.tag).collect::<Vec<_>>()
        };
        let of_door = |door: &Door| {
            let line = door.line.iter().flat_map(|place| of_client(&place.requests));
            line.chain(door.grants.iter().flat_map(|grant| of_client(&grant.open))).collect::<Vec<_>>()
        };
        let tags: Vec<Tag> = self.doors.values().flat_map(of_door).collect();
        for session in self.doors.values_mut().filter_map(|door| door.session.as_mut()) {
            session.leave(client, now);
        }
        for tag in tags {
            self.freed(tag, now);
        }
        self.senders.retain(|_, sender| *sender != client);
    }

    /// The node is a master now, or a replica: what only a master may act on is forgotten.
    fn retire(&mut self) {
        for door in self.doors.values_mut() {
            door.end_session();
            door.grants.iter_mut().for_each(|grant| grant.untold_at = None);
            door.line.retain(|place| !place.requests.is_empty());
        }
    }

    /// The keys are others now.
    fn reload(&mut self, keyspace: &Keyspace, now: Ms) {
        for (db, key, _) in keyspace.all() {
            self.door(&(db, Rc::clone(key)));
        }
        for ((db, key), door) in &mut self.doors {
            let entry = keyspace.get(*db, key).cloned();
            if door.entry != entry {
                door.changed_at = now;
                // Where the same name holds the lock still, nobody can see that it is another grant.
                let is = Lock::of(entry.as_ref(), now);
                let is_another = |grant: &&mut Grant| !is.is_held_by(&grant.place.who);
                door.grants.iter_mut().filter(is_another).for_each(|grant| grant.untold_at = None);
            }
            door.entry = entry;
            if let Some(session) = &mut door.session {
                session.doubtful = true;
            }
        }
    }

    /// Somebody else has changed a key.
    fn changed_by_others(&mut self, name: &Name, entry: Option<&Entry>, writer: Writer, now: Ms) -> Verdict {
        let early = self.kind == ServerKind::Redis8;
        let door = self.door(name);
        let before = door.entry.take();
        door.entry = entry.cloned();
        door.changed_at = now;
        if writer == Writer::Expiry {
            let expiry = before.and_then(|entry| entry.expiry);
            if !expiry.is_some_and(|expiry| now > expiry || (early && now == expiry)) {
                return Err(format!("a key goes that has not expired: {expiry:?} at {now}"));
            }
            return Ok(());
        }
        let (was, is) = (Lock::of(before.as_ref(), now), Lock::of(entry, now));
        let same_holder = was.holder().is_some_and(|held| is.is_held_by(&held.who));
        if !same_holder {
            door.void_grants();
        }
        if let Some(session) = &mut door.session {
            let at_the_end = before.and_then(|entry| entry.expiry).is_some_and(|expiry| now >= expiry);
            let is_gone = is == Lock::Free && was.is_held_by(&session.who) && !at_the_end;
            session.doubtful = true;
            if is_gone && writer == Writer::Command {
                door.end_session();
            }
        }
        Ok(())
    }
}

impl Expected {
    fn is(&self, reply: &Reply) -> bool {
        let is_error = |code: &str| matches!(reply, Reply::Error(text) if text.split(' ').next() == Some(code));
        match self {
            Self::Integer(value) => *reply == Reply::Integer(*value),
            Self::IntegerOrLost(value) => {
                [Reply::Integer(*value), Reply::Nil].contains(reply) || is_error("NOTHELD") || is_error("NOTOWNER")
            }
            Self::Nil => *reply == Reply::Nil,
            Self::Error(code) => is_error(code),
            Self::NilOrError(code) => *reply == Reply::Nil || is_error(code),
            Self::Anything => !matches!(reply, Reply::Error(_)),
        }
    }
}

impl Door {
    fn begin_session(&mut self, who: Who, holds: i64, lease: i64, client: ClientId) {
        match &mut self.session {
            Some(session) if session.who == who => {
                session.lease = session.lease.max(lease);
                session.holds = holds;
                session.clients.insert(client);
                session.closed_at = None;
            }
            _ => {
                let clients = [client].into();
                self.session = Some(Session { who, holds, lease, clients, closed_at: None, doubtful: false });
            }
        }
    }

    /// Lets one request of a grant go.
    fn close_grant(&mut self, tag: Tag, told: bool, now: Ms) {
        for grant in &mut self.grants {
            let Some(index) = grant.open.iter().position(|request| request.tag == tag) else { continue };
            let request = grant.open.remove(index);
            // One who stays and was not told has no part in the session; without others that were, it is given up.
            let session = self.session.as_mut().filter(|_| !told);
            if session.is_some_and(|session| session.leave(request.client, now))
                && (grant.told || !grant.open.is_empty())
            {
                self.session = None;
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

    /// A grant that nobody knows of is not this lock's any more.
    fn void_grants(&mut self) {
        self.grants.iter_mut().for_each(|grant| grant.untold_at = None);
    }
}

/// Whether a key is a counter of fencing tokens.
fn is_counter(key: &[u8], request: &Request) -> bool {
    matches!(request.verb, Verb::Fence) && *key == *counter_of(request.door)
}

/// The number that a key holds.
fn number(entry: Option<&Entry>) -> Option<i64> {
    match entry.map(|entry| &entry.value) {
        Some(Value::String(digits)) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}
