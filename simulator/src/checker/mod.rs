//! Checks what a node does against the contract, note by note.
//!
//! The checker has a model of its own for each lock: a naive one, that searches lists from the front. It follows the journal
//! of the node and says what is wrong the moment that it is seen.

mod compat;
mod fairness;
mod grace;
mod limits;
mod listed;
mod liveness;
mod lock_model;
mod messages;
mod others;
mod recovery;
mod replies;
mod settle;
mod shares;
mod shown;
mod slow_log;
mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use redis_lock::server::{ClientId, Entry, Keyspace, LoggedEvent, Reply, ServerKind, Tag, Value, Writer, slot_of};

use crate::request::{Request, Take, Verb, counter_of, key_of, token_of};
use crate::step::{Knob, SlotFate};
use compat::Compat;
use limits::Limits;
use lock_model::{LockModel, Session, Trust};
use messages::{Announced, Listeners, Withdrawn};
pub use recovery::GrantSuspension;
use recovery::Ledger;
use replies::Expected;
use settle::Undecided;
use slow_log::SlowLog;
use spec::Ms;

/// What stands in the module's way, as far as the contract cares.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Now, by the node's clock.
    pub now: Ms,
    /// Since when the node may write of its own accord, and its clock runs evenly; `None`: it may not.
    pub writable_since: Option<Ms>,
    /// Since when its loop turns, and its clock runs evenly.
    pub turning_since: Ms,
    /// For how long grants are held back.
    pub suspension: GrantSuspension,
    /// Since when they are not; `None`: they may be.
    pub granting_since: Option<Ms>,
    /// Now, by a clock that is never set.
    pub steady: Ms,
}

/// The last fencing token: the numbers stay below 2^53.
const LAST_TOKEN: i64 = (1 << 53) - 1;

/// What is wrong.
pub type Verdict = Result<(), String>;

/// The name of a lock.
type Name = (i32, Rc<[u8]>);

/// What follows one node, as long as it is a master.
pub struct Checker {
    kind: ServerKind,
    models: BTreeMap<Name, LockModel>,
    /// LOCK commands that were sent and not answered yet.
    asked: HashMap<Tag, Request>,
    /// The connections that sent them.
    senders: HashMap<Tag, ClientId>,
    /// Those that came in a script.
    scripts: HashSet<Tag>,
    /// Those that were answered.
    answered: HashSet<Tag>,
    /// The reply that must come next, of those that have run.
    replies: HashMap<Tag, Expected>,
    /// Requests that wait, with their lock.
    waiting: HashMap<Tag, Name>,
    /// Those that RELEASE, or CLIENT UNBLOCK, has taken out of the line: nil is due.
    released: HashSet<Tag>,
    /// Those that were to be answered at the end of the last round, and were not.
    overdue: HashSet<Tag>,
    unblocked: HashSet<ClientId>,
    running: Option<Running>,
    /// Those who listen on each channel.
    listeners: Listeners,
    /// Grants that were told by message, and are not made yet.
    announced: Vec<Announced>,
    /// Those that RELEASE has taken out of the line, and that no message has told so yet.
    withdrawn: Vec<Withdrawn>,
    /// Locks that go to their session or to a waiter by the same name.
    undecided: Vec<Undecided>,
    in_timer: bool,
    compat: Compat,
    limits: Limits,
    slow_log: SlowLog,
    suspension: GrantSuspension,
    /// Those whom the servers that are gone had granted a lock.
    ledger: Ledger,
    now: Ms,
    /// What a clock that is never set shows beyond the node's.
    wall_offset: Ms,
    /// Slots that are not this node's, or not for sure.
    lost_slots: Vec<u8>,
    /// Those of them that are another node's.
    gone_slots: Vec<u8>,
    pub grants: u64,
    pub trace: bool,
    /// Fewer waiters of a lock are granted it in one step than may wait for it.
    pub has_short_batches: bool,
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
    /// The most pairs of a session and a connection that there may have been before.
    pairs_before: usize,
    /// Its connection had the session already that it asks for.
    had_session: Option<Trust>,
    /// When the key was to expire before it began.
    expiry: Option<Ms>,
}

impl Checker {
    /// Follows a node from now on, with the keys that it has.
    pub fn new(kind: ServerKind, keyspace: &Keyspace, grace_ms: Ms) -> Self {
        let mut checker = Self {
            kind,
            models: BTreeMap::new(),
            asked: HashMap::new(),
            senders: HashMap::new(),
            scripts: HashSet::new(),
            answered: HashSet::new(),
            replies: HashMap::new(),
            waiting: HashMap::new(),
            released: HashSet::new(),
            overdue: HashSet::new(),
            unblocked: HashSet::new(),
            running: None,
            listeners: Listeners::default(),
            announced: Vec::new(),
            withdrawn: Vec::new(),
            undecided: Vec::new(),
            in_timer: false,
            compat: Compat::default(),
            limits: Limits::new(grace_ms),
            slow_log: SlowLog::default(),
            suspension: GrantSuspension::default(),
            ledger: Ledger::default(),
            now: 0,
            wall_offset: 0,
            lost_slots: Vec::new(),
            gone_slots: Vec::new(),
            grants: 0,
            trace: false,
            has_short_batches: false,
        };
        checker.start_over(keyspace);
        checker
    }

    /// Another process is the master, with these keys: nobody waits, and no connection is open.
    pub fn start_over(&mut self, keyspace: &Keyspace) {
        let entry = |(db, key, entry): (i32, &Rc<[u8]>, &Entry)| {
            ((db, Rc::clone(key)), LockModel { entry: Some(entry.clone()), ..LockModel::default() })
        };
        self.models = keyspace.all().map(entry).collect();
        self.asked.clear();
        self.senders.clear();
        self.scripts.clear();
        self.answered.clear();
        self.replies.clear();
        self.waiting.clear();
        self.released.clear();
        self.overdue.clear();
        self.unblocked.clear();
        self.running = None;
        self.listeners.clear();
        self.announced.clear();
        self.withdrawn.clear();
        self.undecided.clear();
        self.compat.start_over();
        self.slow_log.clear();
        self.in_timer = false;
    }

    /// A setting is set.
    pub fn configure(&mut self, knob: Knob, value: u32) {
        self.follow_conditions(knob, value.into());
        if knob == Knob::WakeForeign {
            self.compat.is_on = value > 0;
        }
        self.limits.set(knob, value);
    }

    /// A request is on its way.
    pub fn asks(&mut self, tag: Tag, client: ClientId, mut request: Request, in_script: bool) {
        // No connection stands behind a script.
        let needs_connection = |take: &Take| take.session || take.notify.is_some();
        let is_one = |take: &Take| take.is_one(&token_of(request.identity)) && !(in_script && needs_connection(take));
        if matches!(&request.verb, Verb::Take(take) if !is_one(take)) {
            request.verb = Verb::Nonsense(0);
        }
        if in_script {
            self.scripts.insert(tag);
        }
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
        self.models.get(&(db, Rc::from(key))).map_or(0, LockModel::waiting)
    }

    /// Who has asked for a lock, and is the first in its line.
    pub fn first_waiter(&self, db: i32, key: &[u8]) -> Option<ClientId> {
        let model = self.models.get(&(db, Rc::from(key)))?;
        model.queue.iter().flat_map(|queue_entry| &queue_entry.requests).next().map(|request| request.client)
    }

    /// The clock was set: a place whose time was up by the other time may be gone, or not; and a lease that had ended may not
    /// have ended, so that its session takes the lock for lost.
    pub fn clock_was_set(&mut self) {
        for model in self.models.values_mut() {
            model.is_counted = false;
            model.free_capacity();
            // Whatever the time: a key that is still there is held, or has expired once more.
            let lock = model.lock(Ms::MIN);
            let is_lost = |session: &&mut Session| !lock.is_held_by(&session.who);
            model.sessions.iter_mut().filter(is_lost).for_each(Session::mark_uncertain);
        }
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
        for (_, model) in self.models.iter_mut().filter(|((_, key), _)| slot_of(key) == slot) {
            model.mark_sessions_uncertain();
            for request in model.pubsub_waiters() {
                request.may_be_aborted |= fate != SlotFate::Returns;
                request.aborted_since = None;
            }
        }
    }

    /// Follows one thing that has happened.
    ///
    /// # Errors
    /// What is wrong with it.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of note")]
    pub fn follow(&mut self, note: &LoggedEvent, conditions: &Conditions) -> Verdict {
        if self.trace {
            println!("{} {note:?}", conditions.now);
        }
        let now = conditions.now;
        self.update_suspension(conditions);
        self.decide(note, now)?;
        self.check_compat(note, now)?;
        match note {
            LoggedEvent::Began { client, tag, db, denies_blocking } => {
                let Some(request) = self.asked.get(tag).cloned() else { return Ok(()) };
                let name = (*db, Rc::from(key_of(request.lock)));
                let (client, denies_blocking) = (*client, *denies_blocking);
                self.model(&name).drop_expired(Ms::MIN, now);
                let pairs_before = self.most_pairs();
                let had_session = self.has_session(&name, client, &request);
                let expiry = self.model(&name).entry.as_ref().and_then(|entry| entry.expiry);
                self.running = Some(Running {
                    tag: *tag,
                    client,
                    name,
                    denies_blocking,
                    request,
                    reply: None,
                    or_lost: false,
                    withdrew: false,
                    pairs_before,
                    had_session,
                    expiry,
                });
            }
            LoggedEvent::Ended { tag, blocked } => {
                self.slow_log.withdraws = false;
                self.check_announced()?;
                self.check_shared(now)?;
                if let Some(running) = self.running.take().filter(|running| running.tag == *tag) {
                    self.end(running, *blocked, now)?;
                }
            }
            LoggedEvent::TimerBegan => self.in_timer = true,
            LoggedEvent::TimerEnded => {
                self.in_timer = false;
                self.models.values_mut().for_each(|model| model.is_touched = false);
                self.check_shared(now)?;
                return self.check_announced();
            }
            LoggedEvent::Wrote { db, key, entry, writer: Writer::Module } => {
                self.model(&(*db, Rc::clone(key))).draft = Some(entry.clone());
            }
            LoggedEvent::Signalled { db, key } => return self.changed(&(*db, Rc::clone(key)), now),
            LoggedEvent::Wrote { db, key, entry, writer } => {
                return self.changed_externally(&(*db, Rc::clone(key)), entry.as_ref(), *writer, now);
            }
            LoggedEvent::KeyspaceChanged { keyspace } => self.reload(keyspace, now),
            LoggedEvent::ClientUnblocked { client } => self.unblocked(*client, now),
            LoggedEvent::Inner { tag, reply } => return self.replied(*tag, reply, now),
            LoggedEvent::Replied { client, tag, reply } => {
                self.listeners.record(*client, reply);
                let is_whole = *reply != Reply::Status("QUEUED") && self.senders.contains_key(tag);
                // A server that becomes a replica tells all who are blocked, even those who were just let go.
                let may_be_second = matches!(reply, Reply::Error(_));
                if is_whole && !self.answered.insert(*tag) && !may_be_second {
                    return Err(format!("request {tag} is answered twice, with {reply:?} at last"));
                }
                return self.replied(*tag, reply, now);
            }
            LoggedEvent::ModuleUnblocked { tag } => {
                self.ended_by_module(*tag, now);
                self.mark_unblocked(|request| request.tag == *tag);
            }
            LoggedEvent::Sent { .. } => {}
            LoggedEvent::Published { channel, message, reached } => {
                return self.published(channel, message, *reached, now);
            }
            LoggedEvent::Pushed { client, message } => self.listeners.record(*client, message),
            LoggedEvent::PushSent { .. } | LoggedEvent::Announced { .. } => {}
            LoggedEvent::Freed { tag } => self.freed(*tag, now),
            LoggedEvent::Closed { client } => {
                self.listeners.remove(*client);
                self.closed(*client, now);
            }
            LoggedEvent::RoleChanged => self.retire(now),
            LoggedEvent::Restarted => {}
            LoggedEvent::IterationEnded => return self.check_time(conditions),
        }
        Ok(())
    }

    fn model(&mut self, name: &Name) -> &mut LockModel {
        self.models.entry(name.clone()).or_default()
    }
}

/// Whether a key is a counter of fencing tokens.
fn is_counter(key: &[u8], request: &Request) -> bool {
    matches!(request.verb, Verb::Fence) && *key == *counter_of(request.lock)
}

/// The number that a key holds.
fn number(entry: Option<&Entry>) -> Option<i64> {
    match entry.map(|entry| &entry.value) {
        Some(Value::String(digits)) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}
