//! The state of the witness: the trace, the names of clients, and the errands of the timer.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU64;

use redis_lock::server::{self, BlockedClient, BlockedClientId, ClientId, OwnedString, Server, UnixMs};

server::module_state!(STATE: State = State::new());

/// The state of the witness.
pub struct State {
    /// The trace: the lines since it was last read.
    pub lines: Vec<String>,
    /// The names of clients, also of those that have disconnected.
    pub names: BTreeMap<ClientId, String>,
    /// All clients that were blocked. An id is a position in this list, counted from 1.
    waits: Vec<Wait>,
    /// The errands that the timer has not run yet.
    pub errands: Vec<Errand>,
    /// The number of replies that the server has asked for.
    pub answers: i64,
    /// The interval of the server's cron in milliseconds, `None` if it has not run since this was last read.
    pub cron: Option<i64>,
    /// The channel on which each call of the server is published.
    pub reported_on: Option<Vec<u8>>,
}

/// A client that is blocked, or was.
pub struct Wait {
    name: String,
    /// `None` after the server has freed the client.
    pub client: Option<BlockedClient>,
}

/// A task of the timer.
pub struct Errand {
    /// The time when it is due.
    pub due: UnixMs,
    /// The number of the database.
    pub db: i32,
    /// The name of an act and its words. Without words the timer only fires.
    pub words: Vec<Vec<u8>>,
}

impl State {
    /// Creates an empty state.
    pub const fn new() -> Self {
        Self {
            lines: Vec::new(),
            names: BTreeMap::new(),
            waits: Vec::new(),
            errands: Vec::new(),
            answers: 0,
            cron: None,
            reported_on: None,
        }
    }

    /// Returns the id of the next client that is blocked.
    pub fn next_id(&self) -> BlockedClientId {
        id(self.waits.len())
    }

    /// Adds a blocked client, whose id is [`next_id`](Self::next_id).
    pub fn add(&mut self, name: String, client: BlockedClient) {
        self.waits.push(Wait { name, client: Some(client) });
    }

    /// Returns the client with this id.
    pub fn blocked(&mut self, id: BlockedClientId) -> Option<&mut Wait> {
        self.waits.get_mut(place(id))
    }

    /// Returns the name of a blocked client.
    pub fn name_of(&self, id: BlockedClientId) -> String {
        self.waits.get(place(id)).map_or_else(|| "nobody".to_owned(), |wait| wait.name.clone())
    }

    /// Returns the client of this name that was blocked last.
    pub fn ticket_of(&self, name: &[u8]) -> Option<BlockedClientId> {
        self.waits.iter().rposition(|wait| wait.name.as_bytes() == name).map(id)
    }

    /// Forgets the handle of a client.
    pub fn forget(&mut self, id: BlockedClientId) {
        if let Some(wait) = self.blocked(id) {
            wait.client = None;
        }
    }

    /// Returns the time when the next errand is due.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.errands.iter().map(|errand| errand.due).min()
    }

    /// Removes the errands that are due, and returns them in the order in which they were added.
    pub fn take_due(&mut self, now: UnixMs) -> Vec<Errand> {
        let (due, later) = mem::take(&mut self.errands).into_iter().partition(|errand| errand.due <= now);
        self.errands = later;
        due
    }
}

/// Lends the state to `body`.
pub fn with<R>(server: &Server, body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(server, body)
}

/// Adds a line to the trace.
pub fn note(server: &Server, line: String) {
    with(server, |state| state.lines.push(line));
}

/// Adds a line to the trace, and publishes it after the command REPORT.
pub fn report(server: &Server, line: String) {
    if let Some(channel) = with(server, |state| state.reported_on.clone()) {
        server::publish(OwnedString::new(&channel).as_ref(), OwnedString::new(line.as_bytes()).as_ref());
    }
    note(server, line);
}

fn id(place: usize) -> BlockedClientId {
    BlockedClientId(NonZeroU64::MIN.saturating_add(place as u64))
}

fn place(id: BlockedClientId) -> usize {
    id.0.get() as usize - 1
}
