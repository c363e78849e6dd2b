//! What there is on each node: keys, clients, a clock, a timer.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::blocked::Blocked;
use super::blocked_client::BlockedClientId;
use super::client::{Client, Output};
use super::cluster::Cluster;
use super::command::Command;
use super::event_log::{LoggedEvent, Tag};
use super::faults::{self, Fault};
use super::keyspace::Keyspace;
use super::kind::ServerKind;
use super::module_hooks::ModuleHooks;
use super::reply::{Piece, Reply};
use super::stream::{Effect, Unit};
use super::write_blockers::WriteBlockers;
use super::{ClientId, UnixMs};

/// Where every simulated clock begins, in the year 2001, in microseconds.
const BEGINNING_US: i64 = 1_000_000_000_000_000;

thread_local! {
    static NODES: RefCell<Vec<NodeState>> = const { RefCell::new(Vec::new()) };
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static STEADY_US: Cell<i64> = const { Cell::new(BEGINNING_US) };
}

/// One node.
pub(super) struct NodeState {
    pub kind: ServerKind,
    pub hooks: ModuleHooks,
    pub commands: Rc<BTreeMap<&'static str, Command>>,
    pub keyspace: Keyspace,
    pub clients: BTreeMap<ClientId, Client>,
    pub last_client: ClientId,
    /// Clients that have something to be read, in that order.
    pub ready: VecDeque<ClientId>,
    /// Clients that are not blocked any more, whose further commands are due.
    pub resumed: VecDeque<ClientId>,
    /// Clients whose next command waits for the end of a pause.
    pub postponed: Vec<ClientId>,
    pub blocked: BTreeMap<BlockedClientId, Blocked>,
    /// Those that are let go in this round, in that order.
    pub unblocked: Vec<BlockedClientId>,
    pub timer: Timer,
    pub running: Running,
    /// Events that the module is told of at the beginning of the next round.
    pub late_events: Vec<(i32, &'static str, Rc<[u8]>)>,
    /// The module hears events.
    pub listens: bool,
    /// It hears those of Sorted Sets, too.
    pub subscribes_sorted_sets: bool,
    pub blockers: WriteBlockers,
    pub cluster: Option<Cluster>,
    /// What the wall clock shows beyond the time that has passed, in milliseconds.
    pub clock_offset_ms: i64,
    /// The effects of what runs now.
    pub unit: Vec<Effect>,
    /// What replicas and the AOF were told.
    pub stream: Vec<Unit>,
    /// What the module has replied since it was asked.
    pub pieces: Vec<Piece>,
    pub event_log: Vec<LoggedEvent>,
}

/// The module's timer.
#[derive(Default)]
pub(super) struct Timer {
    /// When the descriptor becomes readable.
    pub set_to: Option<UnixMs>,
    /// It fires in this round, or is firing.
    pub started: bool,
}

/// What runs at this moment.
#[derive(Default)]
pub(super) struct Running {
    pub command: Option<Tag>,
    pub transaction: bool,
    pub script: bool,
    /// What runs was said by a master or an AOF, for which keys do not expire by themselves.
    pub replay: bool,
    /// The module is told something, and may write nothing.
    pub callback: bool,
    /// The server goes through its keys, of which none may be opened.
    pub scan: bool,
    /// The running command has blocked its client.
    pub blocked: bool,
    /// Whose command, transaction or script runs.
    pub client: Option<ClientId>,
    /// When it began.
    pub since: Option<UnixMs>,
    /// What that client is told when its command has ended, after the reply.
    pub deferred: Vec<Reply>,
}

impl NodeState {
    pub fn new(kind: ServerKind, hooks: ModuleHooks) -> Self {
        let commands = Rc::new((hooks.commands)().into_iter().map(|command| (command.name, command)).collect());
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
        }
    }

    /// Now, in Unix milliseconds, by this node's clock.
    pub fn now_ms(&self) -> UnixMs {
        now_us_of(self.clock_offset_ms).div_euclid(1000)
    }

    /// The time for which keys are there: it stands still while a command, a transaction or a script runs.
    pub fn time_of_keys(&self) -> UnixMs {
        self.running.since.unwrap_or_else(|| self.now_ms())
    }

    /// Whether a key is there, and not over.
    pub fn has_key(&self, db: i32, key: &[u8]) -> bool {
        self.keyspace.get(db, key).is_some_and(|entry| !entry.is_over(self.time_of_keys()))
    }

    pub fn note(&mut self, note: LoggedEvent) {
        self.event_log.push(note);
    }

    /// Notes that any key may have changed.
    pub fn note_keyspace(&mut self) {
        let keyspace = Rc::new(self.keyspace.clone());
        self.note(LoggedEvent::KeyspaceChanged { keyspace });
    }

    /// Puts a reply into the buffer of a client, if it is still there.
    pub fn reply(&mut self, client: ClientId, tag: Tag, reply: Reply) {
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.output.push(Output::Reply(tag));
            self.note(LoggedEvent::Replied { client, tag, reply });
        }
    }

    /// What is in the buffers leaves the server.
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

    /// What has run is over: its effects go out together.
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

/// Adds a node with nothing on it. Returns its number.
pub(super) fn add(node: NodeState) -> usize {
    NODES.with_borrow_mut(|worlds| {
        worlds.push(node);
        worlds.len().saturating_sub(1)
    })
}

/// The number of the node that runs.
pub(super) fn current() -> usize {
    CURRENT.get()
}

/// Has another node run.
pub(super) fn switch_to(node: usize) {
    CURRENT.set(node);
}

/// Has `body` run on each node.
pub(super) fn on_each(body: impl Fn()) {
    let here = current();
    for node in 0..NODES.with_borrow(Vec::len) {
        switch_to(node);
        body();
    }
    switch_to(here);
}

/// Lends the node that runs to `body`, which calls nobody.
pub(super) fn with<R>(body: impl FnOnce(&mut NodeState) -> R) -> R {
    NODES.with_borrow_mut(|worlds| {
        #[expect(clippy::expect_used, reason = "nothing runs without a node")]
        body(worlds.get_mut(current()).expect("the node"))
    })
}

/// The doors of the node that runs.
pub(super) fn hooks() -> ModuleHooks {
    with(|node| node.hooks)
}

/// Forgets all nodes, and begins a new time.
pub(super) fn forget() {
    NODES.with_borrow_mut(Vec::clear);
    switch_to(0);
    STEADY_US.set(BEGINNING_US);
}

/// Lets time pass, on all nodes alike.
pub(super) fn pass_us(us: i64) {
    STEADY_US.set(STEADY_US.get().saturating_add(us));
}

fn now_us_of(clock_offset_ms: i64) -> i64 {
    STEADY_US.get().saturating_add(clock_offset_ms.saturating_mul(1000))
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> UnixMs {
    with(|node| node.now_ms())
}

/// Now, in Unix microseconds.
pub fn now_us() -> i64 {
    if faults::has(Fault::MicrosecondsStand) {
        return BEGINNING_US;
    }
    with(|node| now_us_of(node.clock_offset_ms))
}

/// Milliseconds of a clock that is never set.
pub fn monotonic_ms() -> i64 {
    let us = if faults::has(Fault::MonotonicClockStands) { BEGINNING_US } else { STEADY_US.get() };
    us.div_euclid(1000)
}

/// Sees to it that [`Module::timer`](super::Module::timer) is called in this loop round, or as soon as the loop gets to it.
pub fn run_timer_soon<M>() {
    if faults::has(Fault::TimerSoonIgnored) {
        return;
    }
    with(|node| {
        node.timer.set_to = Some(UnixMs::MIN);
        node.timer.started = true;
    });
}

/// Sees to it that [`Module::timer`](super::Module::timer) is called at `time`, or earlier.
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
