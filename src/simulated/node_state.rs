//! The state of each node: its keys, clients, clock and timer.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::blocked_client::{Blocked, BlockedClientId};
use super::client::{Client, Output};
use super::cluster::Cluster;
use super::command::Command;
use super::event_log::{LoggedEvent, Seen, Tag};
use super::faults::{self, Fault};
use super::keyspace::Keyspace;
use super::kind::ServerKind;
use super::module_hooks::ModuleHooks;
use super::reply::{Piece, Reply};
use super::stream::{Effect, Unit};
use super::write_blockers::WriteBlockers;
use super::{ClientId, UnixMs};

/// The time at which every simulated clock starts, in Unix microseconds: a day in the year 2001.
const BEGINNING_US: i64 = 1_000_000_000_000_000;

/// Logs what the observer sees of the module, between two calls of the module.
pub(super) fn look() {
    if let Some(look) = with(|node| node.look) {
        let seen = look();
        with(|node| node.note(LoggedEvent::Seen(Seen(seen))));
    }
}

thread_local! {
    static NODES: RefCell<Vec<NodeState>> = const { RefCell::new(Vec::new()) };
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static STEADY_US: Cell<i64> = const { Cell::new(BEGINNING_US) };
    /// How long a read of the monotonic clock takes.
    static CLOCK_READ_US: Cell<i64> = const { Cell::new(0) };
}

/// The state of one node.
pub(super) struct NodeState {
    pub kind: ServerKind,
    pub hooks: ModuleHooks,
    pub commands: Rc<BTreeMap<&'static str, Command>>,
    pub keyspace: Keyspace,
    pub clients: BTreeMap<ClientId, Client>,
    pub last_client: ClientId,
    /// Clients whose input has to be read, in this order.
    pub ready: VecDeque<ClientId>,
    /// Clients that are no longer blocked, and whose further input has to be run.
    pub resumed: VecDeque<ClientId>,
    /// Clients whose next command is postponed until a pause ends.
    pub postponed: Vec<ClientId>,
    pub blocked: BTreeMap<BlockedClientId, Blocked>,
    /// Blocked clients that have to be freed in this event-loop iteration, in this order.
    pub unblocked: Vec<BlockedClientId>,
    pub timer: Timer,
    pub running: Running,
    /// Events of which the module is notified at the start of the next event-loop iteration: database, event, key.
    pub late_events: Vec<(i32, &'static str, Rc<[u8]>)>,
    /// Whether the module is notified of events.
    pub listens: bool,
    /// Whether the module is also notified of events of Sorted Sets.
    pub subscribes_sorted_sets: bool,
    pub blockers: WriteBlockers,
    pub cluster: Option<Cluster>,
    /// The difference between the node's wall clock and the time of all nodes, in milliseconds.
    pub clock_offset_ms: i64,
    /// The effects of the command, transaction, script or timer that runs.
    pub unit: Vec<Effect>,
    /// The units that the node has sent to its replicas and the AOF.
    pub stream: Vec<Unit>,
    /// The parts of the reply that the module has made so far.
    pub pieces: Vec<Piece>,
    pub event_log: Vec<LoggedEvent>,
    /// The observer, which reads the module's state between two of its calls.
    pub look: Option<fn() -> Rc<dyn Any>>,
}

/// The module's timer.
#[derive(Default)]
pub(super) struct Timer {
    /// The time at which the timer's descriptor becomes readable.
    pub set_to: Option<UnixMs>,
    /// Whether the timer runs when the event loop comes to it, even before the time in `set_to`.
    pub started: bool,
}

/// What the node runs at this moment.
#[derive(Default)]
pub(super) struct Running {
    pub command: Option<Tag>,
    pub transaction: bool,
    pub script: bool,
    /// Whether the command comes from a master or an AOF. Keys do not expire by themselves for such a command.
    pub replay: bool,
    /// Whether a callback of the module runs in which it must not write.
    pub callback: bool,
    /// Whether the server scans its keys. No key may be opened during the scan.
    pub scan: bool,
    /// Whether the running command has blocked its client.
    pub blocked: bool,
    /// The client whose command, transaction or script runs.
    pub client: Option<ClientId>,
    /// The time at which that command, transaction or script began.
    pub since: Option<UnixMs>,
    /// The messages that this client gets after the reply to its command.
    pub deferred: Vec<Reply>,
}

impl NodeState {
    pub fn new(kind: ServerKind, hooks: ModuleHooks) -> Self {
        let commands = Rc::new(hooks.commands.iter().map(|command| (command.name, *command)).collect());
        Self {
            kind,
            hooks,
            commands,
            keyspace: Keyspace::default(),
            clients: BTreeMap::new(),
            last_client: 0,
            ready: VecDeque::new(),
            resumed: VecDeque::new(),
            postponed: Vec::new(),
            blocked: BTreeMap::new(),
            unblocked: Vec::new(),
            timer: Timer::default(),
            running: Running::default(),
            late_events: Vec::new(),
            listens: false,
            subscribes_sorted_sets: false,
            blockers: WriteBlockers::default(),
            cluster: None,
            clock_offset_ms: 0,
            unit: Vec::new(),
            stream: Vec::new(),
            pieces: Vec::new(),
            event_log: Vec::new(),
            look: None,
        }
    }

    /// Returns the time of this node's wall clock, in Unix milliseconds.
    pub fn now_ms(&self) -> UnixMs {
        now_us_of(self.clock_offset_ms).div_euclid(1000)
    }

    /// Returns the time by which keys expire, in Unix milliseconds. It does not advance while a command, a transaction or a
    /// script runs.
    pub fn time_of_keys(&self) -> UnixMs {
        self.running.since.unwrap_or_else(|| self.now_ms())
    }

    /// Returns whether a key exists and has not expired.
    pub fn has_key(&self, db: i32, key: &[u8]) -> bool {
        self.keyspace.get(db, key).is_some_and(|entry| !entry.is_over(self.time_of_keys()))
    }

    pub fn note(&mut self, note: LoggedEvent) {
        self.event_log.push(note);
    }

    /// Logs that any key may have changed.
    pub fn note_keyspace(&mut self) {
        let keyspace = Rc::new(self.keyspace.clone());
        self.note(LoggedEvent::KeyspaceChanged { keyspace });
    }

    /// Puts a reply into the output buffer of a client, if it is still connected.
    pub fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.output.push(Output::Reply(tag));
            self.note(LoggedEvent::Replied { client, tag, reply });
        }
    }

    /// Sends the output buffers of all clients. The output for a client that has closed its connection is lost.
    pub fn send_output(&mut self) {
        let mut sent = Vec::new();
        for (&client, entry) in &mut self.clients {
            let output = std::mem::take(&mut entry.output);
            if !entry.peer_closed {
                sent.extend(output.into_iter().map(|output| match output {
                    Output::Reply(tag) => LoggedEvent::Sent { client, tag },
                    Output::Message => LoggedEvent::PushSent { client },
                }));
            }
        }
        self.event_log.extend(sent);
    }

    /// Sends the effects of what has run to replicas and the AOF, as one unit.
    pub fn propagate(&mut self) {
        if !self.unit.is_empty() {
            let mut unit = std::mem::take(&mut self.unit);
            if faults::has(Fault::EffectsReversed) {
                unit.reverse();
            }
            self.stream.push(unit);
        }
    }
}

/// Adds a node. Returns its number.
pub(super) fn add(node: NodeState) -> usize {
    NODES.with_borrow_mut(|worlds| {
        worlds.push(node);
        worlds.len().saturating_sub(1)
    })
}

/// Returns the number of the current node.
pub(super) fn current() -> usize {
    CURRENT.get()
}

/// Makes another node the current one.
pub(super) fn switch_to(node: usize) {
    CURRENT.set(node);
}

/// Runs `body` once for each node, with that node as the current one.
pub(super) fn on_each(body: impl Fn()) {
    let here = current();
    for node in 0..NODES.with_borrow(Vec::len) {
        switch_to(node);
        body();
    }
    switch_to(here);
}

/// Lends the current node to `body`, which must not call the module or this function.
pub(super) fn with<R>(body: impl FnOnce(&mut NodeState) -> R) -> R {
    NODES.with_borrow_mut(|worlds| {
        #[expect(clippy::expect_used, reason = "nothing runs without a node")]
        body(worlds.get_mut(current()).expect("the node"))
    })
}

/// Returns the module hooks of the current node.
pub(super) fn hooks() -> ModuleHooks {
    with(|node| node.hooks)
}

/// Removes all nodes, and resets the time.
pub(super) fn forget() {
    NODES.with_borrow_mut(Vec::clear);
    switch_to(0);
    STEADY_US.set(BEGINNING_US);
    set_clock_read_us(0);
}

/// Sets how long a read of the monotonic clock takes, so that the work between two reads takes time.
pub(super) fn set_clock_read_us(us: i64) {
    CLOCK_READ_US.set(us);
}

/// Advances the time of all nodes, in microseconds.
pub(super) fn pass_us(us: i64) {
    STEADY_US.set(STEADY_US.get().saturating_add(us));
}

fn now_us_of(clock_offset_ms: i64) -> i64 {
    STEADY_US.get().saturating_add(clock_offset_ms.saturating_mul(1000))
}

/// Returns the time of the current node's wall clock, in Unix milliseconds.
pub fn now_ms() -> UnixMs {
    with(|node| node.now_ms())
}

/// Returns the time of the current node's wall clock, in Unix microseconds.
pub fn now_us() -> i64 {
    if faults::has(Fault::MicrosecondsStand) {
        return BEGINNING_US;
    }
    with(|node| now_us_of(node.clock_offset_ms))
}

/// Returns the milliseconds of a clock that is never set.
pub fn monotonic_ms() -> i64 {
    pass_us(CLOCK_READ_US.get());
    let us = if faults::has(Fault::MonotonicClockStands) { BEGINNING_US } else { STEADY_US.get() };
    us.div_euclid(1000)
}

/// Requests a call of [`Module::timer`](super::Module::timer) in this event-loop iteration, or in the next one if the loop has
/// already passed the timer.
pub fn run_timer_soon<M>() {
    if faults::has(Fault::TimerSoonIgnored) {
        return;
    }
    with(|node| {
        node.timer.set_to = Some(UnixMs::MIN);
        node.timer.started = true;
    });
}

/// Requests a call of [`Module::timer`](super::Module::timer) at `time`, in Unix milliseconds, or earlier.
pub fn set_timer<M>(time: UnixMs) {
    if time <= now_ms() {
        return run_timer_soon::<M>();
    }
    let time = if faults::has(Fault::TimerLate) { time.saturating_add(5) } else { time };
    with(|node| {
        let timer = &mut node.timer;
        timer.set_to = Some(timer.set_to.map_or(time, |set_to| set_to.min(time)));
    });
}
