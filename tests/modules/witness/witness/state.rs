//! What the witness remembers: the trace, who is who, and what the timer is to do.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU64;

use redis_lock::server::{self, BlockedClient, BlockedClientId, ClientId, OwnedString, UnixMs};

server::module_state!(STATE: State = State::new());

pub struct State {
    /// What has happened since the trace was last read.
    pub lines: Vec<String>,
    /// By what names clients go, those that are closed, too.
    pub names: BTreeMap<ClientId, String>,
    /// Everybody who was blocked; ids count them from 1.
    waits: Vec<Wait>,
    pub errands: Vec<Errand>,
    /// How many answers have been asked for.
    pub answers: i64,
    /// In what intervals the server's cron runs, if it has run since that was last asked.
    pub cron: Option<i64>,
    /// The channel on which everything is published that the server calls.
    pub reported_on: Option<Vec<u8>>,
}

/// A client that is blocked, or was.
pub struct Wait {
    name: String,
    /// `None` once it is freed.
    pub client: Option<BlockedClient>,
}

/// What the timer is to do: an act and its words, or nothing but to fire.
pub struct Errand {
    pub due: UnixMs,
    pub db: i32,
    pub words: Vec<Vec<u8>>,
}

impl State {
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

    /// The id of who is blocked next.
    pub fn next_id(&self) -> BlockedClientId {
        id(self.waits.len())
    }

    pub fn add(&mut self, name: String, client: BlockedClient) {
        self.waits.push(Wait { name, client: Some(client) });
    }

    pub fn blocked(&mut self, id: BlockedClientId) -> Option<&mut Wait> {
        self.waits.get_mut(place(id))
    }

    /// The name of a blocked client.
    pub fn name_of(&self, id: BlockedClientId) -> String {
        self.waits.get(place(id)).map_or_else(|| "nobody".to_owned(), |wait| wait.name.clone())
    }

    /// Whom a name stands for: the latest who was blocked under it.
    pub fn ticket_of(&self, name: &[u8]) -> Option<BlockedClientId> {
        self.waits.iter().rposition(|wait| wait.name.as_bytes() == name).map(id)
    }

    pub fn forget(&mut self, id: BlockedClientId) {
        if let Some(wait) = self.blocked(id) {
            wait.client = None;
        }
    }

    /// When the timer has something to do next.
    pub fn next_due(&self) -> Option<UnixMs> {
        self.errands.iter().map(|errand| errand.due).min()
    }

    /// Takes out what is due, in the order in which it was asked for.
    pub fn take_due(&mut self, now: UnixMs) -> Vec<Errand> {
        let (due, later) = mem::take(&mut self.errands).into_iter().partition(|errand| errand.due <= now);
        self.errands = later;
        due
    }
}

/// Lends the state to `body`, which does not call the server.
pub fn with<R>(body: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(body)
}

/// Adds a line to the trace.
pub fn note(line: String) {
    with(|state| state.lines.push(line));
}

/// Adds a line about something that has happened, and publishes it if it is to be reported.
pub fn report(line: String) {
    if let Some(channel) = with(|state| state.reported_on.clone()) {
        server::publish(OwnedString::new(&channel).as_ref(), OwnedString::new(line.as_bytes()).as_ref());
    }
    note(line);
}

fn id(place: usize) -> BlockedClientId {
    BlockedClientId(NonZeroU64::MIN.saturating_add(place as u64))
}

fn place(id: BlockedClientId) -> usize {
    id.0.get() as usize - 1
}
