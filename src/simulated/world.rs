//! What there is on each node: keys, a clock, clients.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::ticket::Ticket;
use super::{ClientId, UnixMs};

/// Where every simulated clock begins, in the year 2001.
const BEGINNING: UnixMs = 1_000_000_000_000;

thread_local! {
    static WORLDS: RefCell<Vec<World>> = const { RefCell::new(Vec::new()) };
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// What the module has replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    Nil,
    Error(String),
    Bytes(Vec<u8>),
    /// So many elements follow.
    Array(usize),
    /// So many pairs follow.
    Map(usize),
}

/// A value of the keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

pub(super) struct Entry {
    pub value: Value,
    pub expiry: Option<UnixMs>,
}

/// One node.
pub(super) struct World {
    pub now_ms: UnixMs,
    pub keys: BTreeMap<(i32, Vec<u8>), Entry>,
    /// What replicas and the AOF were told, command by command.
    pub replicated: Vec<Vec<Vec<u8>>>,
    /// When the module's timer fires.
    pub fires_at: Option<UnixMs>,
    pub blocked: BTreeMap<Ticket, ClientId>,
    /// Clients that were let go in this round, in that order.
    pub unblocked: Vec<(Ticket, ClientId)>,
    pub replies: Vec<(ClientId, Reply)>,
}

impl World {
    const fn new() -> Self {
        Self {
            now_ms: BEGINNING,
            keys: BTreeMap::new(),
            replicated: Vec::new(),
            fires_at: None,
            blocked: BTreeMap::new(),
            unblocked: Vec::new(),
            replies: Vec::new(),
        }
    }
}

/// The number of the node that runs.
pub(super) fn current() -> usize {
    CURRENT.get()
}

/// Has another node run.
pub(super) fn switch_to(node: usize) {
    CURRENT.set(node);
}

/// Lends the node that runs to `body`, which calls nobody.
pub(super) fn with<R>(body: impl FnOnce(&mut World) -> R) -> R {
    WORLDS.with_borrow_mut(|worlds| {
        let node = current();
        if worlds.len() <= node {
            worlds.resize_with(node.saturating_add(1), World::new);
        }
        #[expect(clippy::expect_used, reason = "it was made room for")]
        body(worlds.get_mut(node).expect("the node"))
    })
}

/// Forgets all nodes.
pub(super) fn forget() {
    WORLDS.with_borrow_mut(Vec::clear);
    switch_to(0);
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> UnixMs {
    with(|world| world.now_ms)
}

/// Now, in Unix microseconds.
pub fn now_us() -> i64 {
    now_ms().saturating_mul(1000)
}

/// Milliseconds of a clock that is never set.
pub fn steady_ms() -> i64 {
    now_ms()
}

/// Sees to it that [`Module::timer`](super::Module::timer) is called in this loop round.
pub fn fire<M>() {
    fire_at::<M>(now_ms());
}

/// Sees to it that [`Module::timer`](super::Module::timer) is called at `time`, or earlier.
pub fn fire_at<M>(time: UnixMs) {
    with(|world| world.fires_at = Some(world.fires_at.map_or(time, |set| set.min(time))));
}
