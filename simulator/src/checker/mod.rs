//! Checks what a node does against the contract, event by event.
//!
//! The checker has its own model of each lock: a naive one, which searches lists from the front. It follows the log of
//! the node, and reports the first violation.

mod compat;
mod expected;
mod grace;
mod limits;
mod listed;
mod liveness;
mod lock_model;
mod messages;
mod others;
mod recovery;
mod replies;
mod seen;
mod settings;
mod settle;
mod shares;
mod shown;
mod slow_log;
mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use redis_lock::server::{ClientId, Entry, Keyspace, LoggedEvent, Reply, Seen, ServerKind, Tag, Writer, slot_of};

use crate::request::{Request, Take, Verb, key_of, token_of};
use crate::step::{Knob, SlotFate};
use compat::Compat;
use expected::Expected;
use lock_model::{LockModel, Session};
use messages::{Announced, Listeners, Withdrawn};
pub use recovery::GrantSuspension;
use recovery::Ledger;
use seen::View;
use settings::Limits;
use slow_log::SlowLog;
use spec::Ms;

/// The conditions that limit what the module may do, as far as the contract depends on them.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The current time of the node's clock.
    pub now: Ms,
    /// The time since which the node may write by itself and its clock runs evenly. `None`: it may not write.
    pub writable_since: Option<Ms>,
    /// The time since which the event loop runs, and the clock runs evenly.
    pub turning_since: Ms,
    /// How long grants are suspended.
    pub suspension: GrantSuspension,
    /// The time since which grants are not suspended. `None`: they may be suspended.
    pub granting_since: Option<Ms>,
    /// The current time of a clock that is never set.
    pub steady: Ms,
}

/// The last fencing token. The numbers stay below 2^53.
const LAST_TOKEN: i64 = (1 << 53) - 1;

/// The result of a check. The error describes the violation.
pub type Verdict = Result<(), String>;

/// The database and the key of a lock.
type Name = (i32, Rc<[u8]>);

/// Follows one node, while it is a master.
pub struct Checker {
    kind: ServerKind,
    models: BTreeMap<Name, LockModel>,
    /// The LOCK commands that were sent and have no reply yet.
    asked: HashMap<Tag, Request>,
    /// The connections that sent the commands.
    senders: HashMap<Tag, ClientId>,
    /// The commands that came in a script.
    scripts: HashSet<Tag>,
    /// The commands that have a reply.
    answered: HashSet<Tag>,
    /// The required replies of the commands that have run.
    replies: HashMap<Tag, Expected>,
    /// The waiters of blocked clients, with their locks.
    waiting: HashMap<Tag, Name>,
    /// The requests whose waits the module has ended, and the code of the error that they get. Without a code it is nil.
    released: HashMap<Tag, &'static str>,
    /// The requests whose replies were due at the end of the last iteration, and did not come.
    overdue: HashSet<Tag>,
    unblocked: HashSet<ClientId>,
    running: Option<Running>,
    /// The subscribers of each channel.
    listeners: Listeners,
    /// The grants that a message has announced, and that are not made yet.
    announced: Vec<Announced>,
    /// The waits that have ended, and of which no message has notified yet.
    withdrawn: Vec<Withdrawn>,
    /// What the module kept at the beginning of this step, and what it keeps at the end.
    behind: Option<Rc<View>>,
    ahead: Option<Rc<View>>,
    /// Whether the module may drop detached entries, because there are as many as allowed.
    may_drop_entries: bool,
    /// Whether the module drops all detached entries, because the role of the server has changed.
    is_retiring: bool,
    in_timer: bool,
    compat: Compat,
    limits: Limits,
    slow_log: SlowLog,
    suspension: GrantSuspension,
    /// The holders to which failed servers had granted a lock.
    ledger: Ledger,
    now: Ms,
    /// The time of the clock that is never set, minus the time of the node's clock.
    wall_offset: Ms,
    /// The slots that the node does not own, or may not own.
    lost_slots: Vec<u8>,
    /// The slots among them that another node owns, and since when.
    gone_slots: Vec<(u8, Ms)>,
    pub grants: u64,
    /// The requests that later ones have replaced.
    pub replaced: u64,
    pub trace: bool,
    /// Whether one step may grant a lock to fewer waiters than could get it.
    pub has_short_batches: bool,
}

/// A LOCK command that is running.
struct Running {
    tag: Tag,
    client: ClientId,
    name: Name,
    denies_blocking: bool,
    request: Request,
    /// The reply, after the command has changed the lock.
    reply: Option<i64>,
    /// Whether the command is a RELEASE that has withdrawn a waiter.
    withdrew: bool,
    /// Whether the token may have had a detached entry, which the command withdraws if it is a RELEASE.
    may_have_waited: bool,
    /// The request that waits, and that the module has ended because this one takes its place.
    replaces: Option<Tag>,
    /// The most sessions that the module may have counted before the command.
    sessions_before: usize,
    /// Whether the requested session is already counted, and how certain that is.
    had_session: Option<bool>,
    /// The expiry of the key before the command.
    expiry: Option<Ms>,
}

impl Checker {
    /// Returns a checker that follows a node from now on, with the keys of the node.
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
            released: HashMap::new(),
            overdue: HashSet::new(),
            unblocked: HashSet::new(),
            running: None,
            listeners: Listeners::default(),
            announced: Vec::new(),
            withdrawn: Vec::new(),
            behind: None,
            ahead: None,
            may_drop_entries: false,
            is_retiring: false,
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
            replaced: 0,
            trace: false,
            has_short_batches: false,
        };
        checker.start_over(keyspace);
        checker
    }

    /// Another process is the master, with these keys. It has no waiters and no connections.
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
        (self.behind, self.ahead) = (None, None);
        self.compat.start_over();
        self.slow_log.clear();
        self.in_timer = false;
    }

    /// A setting has changed.
    pub fn configure(&mut self, knob: Knob, value: u32) {
        self.follow_conditions(knob, value.into());
        if knob == Knob::WakeForeign {
            self.compat.is_on = value > 0;
        }
        self.limits.set(knob, value);
    }

    /// A client has sent a request.
    pub fn asks(&mut self, tag: Tag, client: ClientId, mut request: Request, in_script: bool) {
        // A script has no connection.
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

    /// Checks that each request of an open connection has a reply, or waits, or follows a request that waits.
    ///
    /// # Errors
    ///
    /// A request without a reply.
    pub fn check_answered(&self) -> Verdict {
        let waiting: HashSet<_> = self.waiting.keys().filter_map(|tag| self.senders.get(tag)).collect();
        let is_open = |tag: &Tag| self.senders.get(tag).is_some_and(|client| !waiting.contains(client));
        match self.asked.iter().find(|(tag, _)| is_open(tag)) {
            Some((tag, request)) => Err(format!("{request}, number {tag}, was never answered")),
            None => Ok(()),
        }
    }

    /// Returns the number of requests that wait for a lock.
    pub fn waiting_for(&self, db: i32, key: &[u8]) -> usize {
        self.models.get(&(db, Rc::from(key))).map_or(0, LockModel::waiting)
    }

    /// Returns the client of the first waiter of a lock.
    pub fn first_waiter(&self, db: i32, key: &[u8]) -> Option<ClientId> {
        let model = self.models.get(&(db, Rc::from(key)))?;
        model.requests().next().map(|request| request.client)
    }

    /// The clock was set. A lease that had ended may have become valid again, so its session may have ended or not.
    pub fn clock_was_set(&mut self) {
        for model in self.models.values_mut() {
            model.is_counted = false;
            // Without regard to the time: a key that exists is held, or has expired again.
            let lock = model.lock(Ms::MIN);
            let is_lost = |session: &&mut Session| !lock.is_held_by(&session.who);
            model.sessions.iter_mut().filter(is_lost).for_each(Session::mark_uncertain);
        }
    }

    /// A slot arrives or leaves. The module may have had work for the locks of the slot, which may be void now.
    pub fn moves_slot(&mut self, slot: u8, fate: SlotFate) {
        let was_lost = self.lost_slots.contains(&slot);
        self.lost_slots.retain(|&lost| lost != slot);
        if fate != SlotFate::Returns {
            self.lost_slots.push(slot);
        }
        self.gone_slots.retain(|&(gone, _)| gone != slot);
        if fate == SlotFate::Leaves {
            self.gone_slots.push((slot, self.now));
        }
        if !was_lost && fate == SlotFate::Returns {
            return; // The slot never left.
        }
        for (_, model) in self.models.iter_mut().filter(|((_, key), _)| slot_of(key) == slot) {
            model.mark_sessions_uncertain();
            for request in model.pubsub_waiters() {
                request.may_be_aborted |= fate != SlotFate::Returns;
                request.aborted_since = None;
            }
        }
    }

    /// Follows one event.
    ///
    /// # Errors
    ///
    /// The violation in it.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of note")]
    pub fn follow(&mut self, note: &LoggedEvent, conditions: &Conditions) -> Verdict {
        if self.trace {
            println!("{} {note:?}", conditions.now);
        }
        let now = conditions.now;
        self.update_suspension(conditions);
        self.check_compat(note, now)?;
        if matches!(note, LoggedEvent::Began { .. } | LoggedEvent::TimerBegan | LoggedEvent::IterationEnded) {
            self.see(conditions)?;
        }
        match note {
            LoggedEvent::Began { client, tag, db, denies_blocking } => {
                let Some(request) = self.asked.get(tag).cloned() else { return Ok(()) };
                let name = (*db, Rc::from(key_of(request.lock)));
                let (client, denies_blocking) = (*client, *denies_blocking);
                let sessions_before = self.most_sessions();
                let had_session = self.has_session(&name, &request);
                let expiry = self.model(&name).entry.as_ref().and_then(|entry| entry.expiry);
                self.running = Some(Running {
                    tag: *tag,
                    client,
                    name,
                    denies_blocking,
                    request,
                    reply: None,
                    withdrew: false,
                    may_have_waited: false,
                    replaces: None,
                    sessions_before,
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
                // A server that becomes a replica replies to all blocked clients, including those that were just
                // unblocked.
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
            LoggedEvent::Seen(Seen(view)) => self.behind = Rc::clone(view).downcast().ok(),
            LoggedEvent::IterationEnded => return self.check_time(conditions),
        }
        Ok(())
    }

    fn model(&mut self, name: &Name) -> &mut LockModel {
        self.models.entry(name.clone()).or_default()
    }
}
