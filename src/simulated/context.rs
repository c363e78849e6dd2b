//! The context of a call of the module by the server.

use std::ffi::CStr;
use std::marker::PhantomData;

use bitflags::bitflags;

use super::ClientId;
use super::cluster::{self, Cluster};
use super::cluster_slots::ClusterSlots;
use super::crash::crash;
use super::expiry;
use super::faults::{self, Fault};
use super::keyspace::Value;
use super::kinds::{Probe, Slot};
use super::main_thread::Server;
use super::node_state::{self, NodeState};
use super::reply::{Piece, Reply};
use super::setting;
use super::string::{Arguments, StringRef};

/// The client of a context outside a command.
const NO_CLIENT: ClientId = 0;

/// A context of the server, in a call of module `M`.
pub struct Context<'c, M> {
    client: ClientId,
    db: i32,
    server: Server,
    callback: PhantomData<&'c ()>,
    module: PhantomData<fn() -> M>,
}

bitflags! {
    /// The state of the context and the server.
    #[derive(Clone, Copy)]
    pub struct ContextFlags: u32 {
        const REPLICA = 1;
        const SCRIPT = 1 << 1;
        const TRANSACTION = 1 << 2;
        const CLUSTER = 1 << 3;
        const LOADING = 1 << 4;
        const DENY_BLOCKING = 1 << 5;
    }
}

/// Returns whether the server suspends all writes: CLIENT PAUSE, or a failover.
pub fn is_paused() -> bool {
    node_state::with(|node| node.blockers.is_paused(node.now_ms()) && !faults::has(Fault::PauseHidden))
}

impl<M> Context<'_, M> {
    pub(super) fn new(client: ClientId, db: i32) -> Self {
        Self { client, db, server: Server::new(), callback: PhantomData, module: PhantomData }
    }

    /// Returns the right to use the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the right to call the server.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    pub fn flags(&self) -> ContextFlags {
        node_state::with(|node| {
            let running = &node.running;
            let mut flags = ContextFlags::empty();
            flags.set(ContextFlags::REPLICA, node.blockers.is_seen_as_replica());
            flags.set(ContextFlags::SCRIPT, running.script && !faults::has(Fault::ScriptHidden));
            let is_transaction = running.transaction && !faults::has(Fault::TransactionHidden);
            flags.set(ContextFlags::TRANSACTION, is_transaction);
            flags.set(ContextFlags::CLUSTER, node.cluster.is_some());
            flags.set(ContextFlags::DENY_BLOCKING, running.script || is_transaction);
            flags
        })
    }

    /// Returns `true`: every user has the permission for every channel.
    pub fn may_publish_on(&self, _channel: StringRef<'_>) -> bool {
        true
    }

    /// Returns `true`, as [`may_publish_on`](Self::may_publish_on) does, for a command with these arguments.
    pub fn may_publish_with(&self, _arguments: Arguments<'_>, channel: StringRef<'_>) -> bool {
        self.may_publish_on(channel)
    }

    /// Returns the number of the selected database.
    pub fn db(&self) -> i32 {
        self.db
    }

    /// Selects a database. A number out of range has no effect.
    pub fn select_db(&mut self, db: i32) {
        let (in_command, in_event) = node_state::with(|node| (node.running.command.is_some(), node.running.callback));
        if in_command {
            crash(if in_event { "work is done in an event" } else { "a command selects another database" });
        }
        if node_state::with(|node| node.keyspace.has_db(db)) && !faults::has(Fault::SelectIgnored) {
            self.db = db;
        }
    }

    /// Returns the number of the client that sent this command.
    pub fn client_id(&self) -> ClientId {
        self.client
    }

    /// Returns whether the client that sent this command has a connection.
    pub fn has_connection(&self) -> bool {
        self.client != NO_CLIENT && !self.flags().contains(ContextFlags::SCRIPT)
    }

    /// Returns `None`: the simulated server has no INFO.
    pub fn server_info(&mut self, _section: &CStr, _field: &CStr) -> Option<String> {
        None
    }

    /// Returns `i64::MAX`: the replicas of a simulated server always respond.
    pub fn responding_replicas(&mut self, _lag_s: i64) -> i64 {
        i64::MAX
    }

    /// Returns whether the server is starting, and has no client yet.
    pub fn is_starting(&mut self) -> bool {
        node_state::with(|node| node.clients.is_empty()) && !faults::has(Fault::StartHidden)
    }

    /// Writes a warning into the server's log, which the simulation does not keep.
    pub fn warn(&self, _line: &str) {}

    /// Writes a notice into the server's log, which the simulation does not keep.
    pub fn notice(&self, _line: &str) {}

    /// Returns `true`: no command of the simulated server is renamed.
    pub fn has_command(&self, _name: &'static CStr) -> bool {
        true
    }

    /// Returns whether the server accepts writes: it is a master, and is not paused.
    pub fn accepts_writes(&self) -> bool {
        !is_paused() && node_state::with(|node| !node.blockers.is_seen_as_replica())
    }

    /// Returns the slots of this node. Returns `None` outside a cluster.
    pub fn cluster_slots(&mut self) -> Option<ClusterSlots> {
        node_state::with(|node| {
            let cluster = node.cluster.as_ref()?;
            let has_old = faults::has(Fault::SlotListOld);
            let line = if has_old { Cluster::default().own_line() } else { cluster.own_line() };
            ClusterSlots::parse(line.as_bytes())
        })
    }

    /// Returns where the slot of a key is served. The call can expire the key.
    pub fn slot_of(&mut self, key: StringRef<'_>) -> Slot {
        let (served, owned, migrating) = node_state::with(|node| match &node.cluster {
            None => (true, true, false),
            Some(cluster) => {
                let slot = cluster::slot_of(key.0);
                let is_elsewhere = cluster.elsewhere.contains(&slot) && !faults::has(Fault::SlotHidden);
                let is_migrating = cluster.migrating.contains(&slot) && !faults::has(Fault::MigrationHidden);
                (!cluster.is_down, !is_elsewhere, is_migrating)
            }
        });
        if !served {
            return Slot::Unserved;
        }
        let is_there = || node_state::with(|node| node.has_key(self.db, key.0));
        if !owned || (migrating && !is_there()) {
            return Slot::Elsewhere;
        }
        if node_state::with(|node| node.cluster.is_some()) {
            expiry::expire(self.db, key.0);
        }
        Slot::Ours
    }

    /// Returns whether the server would accept a client's write to this key now. The call can expire the key.
    pub fn accepts_write_to(&mut self, key: StringRef<'_>, probe: Probe) -> bool {
        let is_fenced = |node: &NodeState| node.blockers.fence.is_some() && !faults::has(Fault::FenceHidden);
        node_state::with(|node| node.blockers.probes = node.blockers.probes.saturating_add(1));
        if node_state::with(|node| node.blockers.is_seen_as_replica() || is_fenced(node)) {
            return false;
        }
        if self.slot_of(key) != Slot::Ours {
            return false;
        }
        expiry::expire(self.db, key.0);
        node_state::with(|node| match node.keyspace.get(self.db, key.0).map(|entry| &entry.value) {
            None => true,
            Some(Value::String(_)) => probe == Probe::String,
            Some(Value::Hash(_)) => probe == Probe::Hash,
            Some(Value::SortedSet(_)) => probe == Probe::SortedSet,
            Some(Value::Other(_)) => false,
        })
    }

    pub fn reply_integer(&mut self, value: i64) {
        reply(Piece::Whole(Reply::Integer(value)));
    }

    pub fn reply_nil(&mut self) {
        reply(Piece::Whole(Reply::Nil));
    }

    pub fn reply_error(&mut self, text: &str) {
        reply(Piece::Whole(Reply::error(text)));
    }

    pub fn reply_simple(&mut self, text: &'static CStr) {
        reply(Piece::Whole(Reply::Status(text.to_str().unwrap_or_default())));
    }

    pub fn reply_bytes(&mut self, bytes: &[u8]) {
        reply(Piece::Whole(Reply::Bytes(bytes.to_vec())));
    }

    pub fn reply_array(&mut self, len: usize) {
        reply(Piece::Array(len));
    }

    pub fn reply_map(&mut self, len: usize) {
        reply(Piece::Map(len));
    }
}

fn reply(piece: Piece) {
    node_state::with(|node| node.pieces.push(piece));
}

/// Makes the reply to a blocked client. It can do nothing else.
pub struct Replier<'r>(Server, PhantomData<&'r ()>);

impl Replier<'_> {
    pub(super) fn new() -> Self {
        Self(Server::new(), PhantomData)
    }

    pub fn server(&self) -> &Server {
        &self.0
    }

    pub fn integer(&mut self, value: i64) {
        reply(Piece::Whole(Reply::Integer(value)));
    }

    pub fn nil(&mut self) {
        reply(Piece::Whole(Reply::Nil));
    }

    pub fn error(&mut self, text: &str) {
        reply(Piece::Whole(Reply::error(text)));
    }

    pub fn internal_error(&mut self) {
        reply(Piece::Whole(Reply::error("ERR internal error of the module, see the server's log")));
    }
}

/// Returns the value of a setting of the server that is a number, unless the settings are hidden.
pub fn server_setting(name: &'static CStr) -> Option<i64> {
    let setting = setting::of_server(name.to_bytes()).filter(|_| !setting::are_hidden())?;
    Some(if faults::has(Fault::SettingOld) { setting.default } else { setting.get() })
}

/// Returns `true`. An ACL category has no effect here, because there are no users.
pub fn has_own_acl_categories() -> bool {
    true
}
