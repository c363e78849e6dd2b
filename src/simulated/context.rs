//! The context in which the server has called the module.

use std::ffi::CStr;
use std::marker::PhantomData;

use bitflags::bitflags;

use super::ClientId;
use super::kinds::{Probe, Slot};
use super::module::Module;
use super::string::StringRef;
use super::ticket::Ticket;
use super::world::{self, Reply};

/// A context of the server, in a call of module `M`.
pub struct Context<'c, M> {
    client: ClientId,
    db: i32,
    callback: PhantomData<&'c ()>,
    module: PhantomData<fn() -> M>,
}

bitflags! {
    /// What the context and the server are like.
    #[derive(Clone, Copy)]
    pub struct ContextFlags: u32 {
        const REPLICA = 1;
        const SCRIPT = 1 << 1;
        const CLUSTER = 1 << 2;
        const LOADING = 1 << 3;
        const DENY_BLOCKING = 1 << 4;
    }
}

impl<M> Context<'_, M> {
    pub(super) fn new(client: ClientId, db: i32) -> Self {
        Self { client, db, callback: PhantomData, module: PhantomData }
    }

    pub fn flags(&self) -> ContextFlags {
        ContextFlags::empty()
    }

    /// The number of the selected database.
    pub fn db(&self) -> i32 {
        self.db
    }

    /// Selects a database.
    pub fn select_db(&mut self, db: i32) {
        self.db = db;
    }

    /// The number of the client whose command this is.
    pub fn client_id(&self) -> ClientId {
        self.client
    }

    /// Whether the client whose command this is has a connection.
    pub fn has_connection(&self) -> bool {
        true
    }

    /// One field of a section of INFO: there is none.
    pub fn server_info(&mut self, _section: &CStr, _field: &CStr) -> Option<String> {
        None
    }

    /// Writes a warning into the server's log, which nobody reads.
    pub fn warn(&self, _line: &str) {}

    /// Whether anything may be written.
    pub fn takes_writes(&self) -> bool {
        true
    }

    /// Whether the key is this node's to read.
    pub fn slot_of(&mut self, _key: StringRef<'_>) -> Slot {
        Slot::Ours
    }

    /// Whether the server would take a client's write to this key now.
    pub fn write_is_welcome(&mut self, _key: StringRef<'_>, _probe: Probe) -> bool {
        true
    }

    pub fn reply_integer(&mut self, value: i64) {
        self.reply(Reply::Integer(value));
    }

    pub fn reply_nil(&mut self) {
        self.reply(Reply::Nil);
    }

    pub fn reply_error(&mut self, text: &str) {
        self.reply(Reply::Error(text.to_owned()));
    }

    pub fn reply_bytes(&mut self, bytes: &[u8]) {
        self.reply(Reply::Bytes(bytes.to_vec()));
    }

    pub fn reply_array(&mut self, len: usize) {
        self.reply(Reply::Array(len));
    }

    pub fn reply_map(&mut self, len: usize) {
        self.reply(Reply::Map(len));
    }

    fn reply(&mut self, reply: Reply) {
        world::with(|world| world.replies.push((self.client, reply)));
    }
}

/// Makes the reply for a blocked client, and nothing else.
pub struct Replier<'r> {
    client: ClientId,
    round: PhantomData<&'r ()>,
}

impl Replier<'_> {
    pub(super) fn new(client: ClientId) -> Self {
        Self { client, round: PhantomData }
    }

    pub fn integer(&mut self, value: i64) {
        world::with(|world| world.replies.push((self.client, Reply::Integer(value))));
    }

    pub fn nil(&mut self) {
        world::with(|world| world.replies.push((self.client, Reply::Nil)));
    }
}

/// Begins to hear of events: this server tells of them in any case.
pub fn listen<M: Module>() {}

/// Lets a blocked client go on: the server asks [`Module::answer`] for the reply at the end of the round.
pub fn unblock<M: Module>(ticket: Ticket) {
    world::with(|world| {
        if let Some(client) = world.blocked.remove(&ticket) {
            world.unblocked.push((ticket, client));
        }
    });
}
