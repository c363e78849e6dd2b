//! Controls a simulated server from outside: its clients, its clock, and the changes and failures that happen to it.

mod slots;

use std::any::Any;
use std::ffi::CStr;
use std::rc::Rc;

use super::blocked;
use super::client::{Client, Sent};
use super::event_log::{LoggedEvent, Tag};
use super::expiry;
use super::faults::{self, Fault};
use super::hooks_of_module::hooks_of;
use super::keyspace::Keyspace;
use super::kind::ServerKind;
use super::main_thread;
use super::module::Module;
use super::native;
use super::node_state::{self, NodeState};
use super::notify;
use super::process;
use super::setting;
use super::stream::Unit;
use super::write_blockers::{Unnoticed, WriteFence};
use super::{ClientId, UnixMs};

/// A simulated server with a module. All nodes of a thread share the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(usize);

impl Node {
    /// Adds a server without keys to the servers of this thread, and starts it with the module.
    pub fn new<M: Module>(kind: ServerKind) -> Self {
        let node = Self(node_state::add(NodeState::new(kind, hooks_of::<M>())));
        node.start();
        node
    }

    /// Loads the module, before any client is connected.
    fn start(self) {
        node_state::switch_to(self.0);
        notify::always(|hooks| (hooks.loaded)());
    }

    /// Removes all servers of this thread, and resets the time.
    pub fn forget_all() {
        node_state::forget();
        main_thread::forget();
        setting::forget();
    }

    /// Advances the time of all nodes, in microseconds. No node does anything in this time.
    pub fn pass_us(us: i64) {
        node_state::pass_us(us);
    }

    /// Sets how long a read of the monotonic clock takes, so that the work between two reads takes time.
    pub fn set_clock_read_us(us: i64) {
        node_state::set_clock_read_us(us);
    }

    fn here<R>(self, body: impl FnOnce(&mut NodeState) -> R) -> R {
        node_state::switch_to(self.0);
        node_state::with(body)
    }

    /// Returns the time of this node's wall clock, in Unix milliseconds.
    pub fn now_ms(self) -> UnixMs {
        self.here(|node| node.now_ms())
    }

    /// Opens a connection. Returns the client's number.
    pub fn connect(self) -> ClientId {
        self.here(|node| {
            node.last_client = node.last_client.saturating_add(1);
            node.clients.insert(node.last_client, Client::default());
            node.last_client
        })
    }

    /// Sends a command. The server reads it in the next event-loop iteration.
    pub fn send(self, client: ClientId, tag: Tag, words: Vec<Vec<u8>>) {
        self.here(|node| {
            if let Some(entry) = node.clients.get_mut(&client).filter(|entry| !entry.peer_closed) {
                entry.input.push_back(Sent { tag, words });
                node.ready.push_back(client);
            }
        });
    }

    /// Closes a connection from the client's side. The server still runs the commands that the client has sent, but the replies
    /// are lost.
    pub fn hang_up(self, client: ClientId) {
        self.here(|node| {
            if let Some(entry) = node.clients.get_mut(&client) {
                entry.peer_closed = true;
                node.ready.push_back(client);
            }
        });
    }

    /// Returns whether the connection is open at the server's end.
    pub fn has(self, client: ClientId) -> bool {
        self.here(|node| node.clients.contains_key(&client))
    }

    /// Returns the time at which the event loop runs next by itself, in Unix milliseconds. Returns `UnixMs::MIN` if there is work
    /// now, and `None` if nothing is due.
    pub fn next_wake(self) -> Option<UnixMs> {
        self.here(|node| {
            let busy =
                !node.ready.is_empty() || !node.unblocked.is_empty() || !node.resumed.is_empty() || node.timer.started;
            let pause_ends = node.blockers.paused_until.filter(|_| !node.postponed.is_empty());
            if busy { Some(UnixMs::MIN) } else { [node.timer.set_to, pause_ends].into_iter().flatten().min() }
        })
    }

    /// Runs one iteration of the event loop: the clients' input, the timer, and the work before the loop sleeps.
    pub fn turn(self) {
        node_state::switch_to(self.0);
        notify::late_key_events();
        let ready = node_state::with(|node| std::mem::take(&mut node.ready));
        ready.into_iter().for_each(read);
        run_timer();
        blocked::free_all();
        resume();
        node_state::with(|node| {
            node.propagate();
            node.send_output();
        });
        let closing: Vec<ClientId> = node_state::with(|node| {
            let closing = |entry: &Client| entry.closing && entry.output.is_empty();
            node.clients.iter().filter(|(_, entry)| closing(entry)).map(|(&client, _)| client).collect()
        });
        closing.into_iter().for_each(blocked::close);
        node_state::look();
        node_state::with(|node| node.note(LoggedEvent::IterationEnded));
    }

    /// Lets an observer read the module's state before and after each command and each run of the timer. The event log has what it
    /// returns.
    pub fn watch(self, look: fn() -> Rc<dyn Any>) {
        self.here(|node| node.look = Some(look));
    }

    /// Returns the events since the last call.
    pub fn event_log(self) -> Vec<LoggedEvent> {
        self.here(|node| std::mem::take(&mut node.event_log))
    }

    /// Returns the units that the server has sent to its replicas and the AOF since the last call.
    pub fn stream(self) -> Vec<Unit> {
        self.here(|node| std::mem::take(&mut node.stream))
    }

    /// Returns a copy of all keys.
    pub fn keyspace(self) -> Keyspace {
        self.here(|node| node.keyspace.clone())
    }

    /// Returns the fields that the module adds to INFO.
    pub fn info(self) -> Vec<(String, u64)> {
        let hooks = self.here(|node| node.hooks);
        (hooks.info)()
    }

    /// Returns the fields with a word that the module adds to INFO.
    pub fn info_words(self) -> Vec<(&'static CStr, &'static CStr)> {
        let hooks = self.here(|node| node.hooks);
        (hooks.info_words)()
    }

    /// Runs `body`, in which the module's state is the state of this node.
    pub fn with_module<R>(self, body: impl FnOnce() -> R) -> R {
        node_state::switch_to(self.0);
        body()
    }

    /// Runs the server's cron, which a real server runs every `interval_ms` milliseconds.
    pub fn cron(self, interval_ms: i64) {
        let hooks = self.here(|node| node.hooks);
        if !faults::has(Fault::CronStops) {
            (hooks.cron)(interval_ms);
        }
    }

    /// Evicts a key, if it has an expiry and the server is a master that is not paused.
    pub fn evict(self, db: i32, key: &[u8]) {
        let is_evicted = self.here(|node| {
            let is_volatile = node.keyspace.get(db, key).is_some_and(|entry| entry.expiry.is_some());
            is_volatile && !node.blockers.replica && !node.blockers.is_paused(node.now_ms())
        });
        if is_evicted {
            native::evict(db, key);
            self.here(NodeState::propagate);
        }
    }

    /// Runs the server's expiry cycle, which deletes up to `limit` expired keys.
    pub fn expire_some(self, limit: usize) {
        node_state::switch_to(self.0);
        expiry::cycle(limit);
    }

    /// Sets the node's wall clock forward by `ms` milliseconds, or back if `ms` is negative.
    pub fn step_clock(self, ms: i64) {
        self.here(|node| {
            node.clock_offset_ms = node.clock_offset_ms.saturating_add(ms);
            // A step of the clock makes the timer's descriptor readable.
            node.timer.set_to = node.timer.set_to.map(|_| UnixMs::MIN);
        });
    }

    /// Sets the reason why the server refuses writes, or removes it.
    pub fn set_fence(self, fence: Option<WriteFence>) {
        self.here(|node| node.blockers.fence = fence);
    }

    /// Begins or ends a save without a fork, which reads all keys.
    pub fn save_without_fork(self, saves: bool) {
        self.here(|node| node.blockers.saves_without_fork = saves);
    }

    /// Sets whether the server refuses what the module replicates outside of commands.
    pub fn refuse_replication(self, refuses: bool) {
        self.here(|node| node.blockers.replicates_nothing = refuses);
    }

    /// Returns how often the module has asked whether the server would accept a write.
    pub fn probes(self) -> usize {
        self.here(|node| node.blockers.probes)
    }

    /// Makes a change while the server stalls. The server notices the change when its cron has run.
    pub fn change_unnoticed(self, change: Unnoticed) {
        self.here(|node| node.blockers.unnoticed = Some(change));
    }

    /// Makes the server notice what has changed while it stalled.
    pub fn notice(self) {
        let change = self.here(|node| node.blockers.unnoticed.take());
        match change {
            Some(Unnoticed::NoReplicas) => self.set_fence(Some(WriteFence::NoReplicas)),
            Some(Unnoticed::Replaced) => self.become_replica(),
            None => {}
        }
    }

    /// Makes the server a replica. Blocked clients get an error, and their connections are closed.
    pub fn become_replica(self) {
        let blocked: Vec<_> = self
            .here(|node| node.clients.iter().filter_map(|(&client, entry)| Some((client, entry.blocked?))).collect());
        for (client, id) in blocked.into_iter().filter(|&(_, id)| blocked::dismiss(id)) {
            blocked::refuse(
                id,
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            );
            self.here(|node| node.clients.get_mut(&client).map(|entry| entry.closing = true));
        }
        self.set_role(true);
    }

    /// Returns whether the server is a replica.
    pub fn is_replica(self) -> bool {
        self.here(|node| node.blockers.replica)
    }

    /// Hides the server's settings from modules, as if `rename-command` had changed the name of CONFIG.
    pub fn hide_settings(self) {
        setting::hide();
    }

    /// Makes the server a master, if it is a replica.
    pub fn become_master(self) {
        if self.is_replica() {
            self.set_role(false);
        }
    }

    fn set_role(self, replica: bool) {
        self.here(|node| {
            node.blockers.replica = replica;
            node.blockers.unnoticed = None;
            node.note(LoggedEvent::RoleChanged);
        });
        let is_hidden = faults::has(if replica { Fault::ReplicaHidden } else { Fault::PromotionNotAnnounced });
        if !is_hidden {
            notify::always(|hooks| (hooks.role_changed)(!replica));
        }
    }

    /// Replaces the keyspace, as the full synchronization of a replica does.
    pub fn load(self, keyspace: Keyspace) {
        self.here(|node| {
            node.keyspace = keyspace;
            node.note_keyspace();
        });
        notify::if_subscribed(|hooks| (hooks.keyspace_changed)());
    }

    /// Runs a unit of the master, as its replica.
    pub fn replay(self, unit: &Unit) {
        node_state::switch_to(self.0);
        unit.iter().for_each(native::replay);
    }

    /// Runs a command without a client and without the checks that could refuse it.
    pub fn external_command(self, db: i32, words: &[Vec<u8>]) {
        node_state::switch_to(self.0);
        process::external_command(db, words);
    }

    /// Ends the process, and starts another one with these keys.
    pub fn restart(self, keyspace: Keyspace) {
        let (kind, last_client) = self.here(|node| (node.kind, node.last_client));
        let hooks = node_state::hooks();
        (hooks.forget)();
        self.here(|node| {
            let (offset, cluster) = (node.clock_offset_ms, node.cluster.clone());
            let (replica, event_log) = (node.blockers.replica, std::mem::take(&mut node.event_log));
            *node = NodeState { last_client, cluster, clock_offset_ms: offset, ..NodeState::new(kind, hooks) };
            (node.blockers.replica, node.event_log) = (replica, event_log);
            node.note(LoggedEvent::Restarted);
        });
        self.start();
        self.here(|node| node.keyspace = keyspace);
    }
}

/// Runs the input of a client. Closes a client that has closed its side of the connection and has no input left.
fn read(client: ClientId) {
    let (is_new, peer_closed) = node_state::with(|node| {
        let is_postponed = node.postponed.contains(&client);
        match node.clients.get(&client) {
            Some(entry) => (entry.is_free() && !entry.input.is_empty() && !is_postponed, entry.peer_closed),
            None => (false, false),
        }
    });
    if is_new {
        process::run_all(client);
        if peer_closed {
            node_state::with(|node| node.ready.push_back(client));
        }
    } else if peer_closed {
        blocked::close(client);
    }
}

fn run_timer() {
    let is_due = node_state::with(|node| {
        let now = node.now_ms();
        let timer = &mut node.timer;
        let expired = timer.set_to.take_if(|set_to| *set_to <= now).is_some();
        std::mem::take(&mut timer.started) || expired
    });
    if is_due {
        node_state::look();
        node_state::with(|node| node.note(LoggedEvent::TimerBegan));
        let hooks = node_state::hooks();
        (hooks.timer)();
        node_state::with(|node| {
            node.propagate();
            node.note(LoggedEvent::TimerEnded);
        });
        node_state::look();
    }
}

/// Runs the further input of clients that are no longer blocked or paused.
fn resume() {
    let resumed = node_state::with(|node| {
        let mut resumed = std::mem::take(&mut node.resumed);
        if !node.blockers.is_paused(node.now_ms()) {
            resumed.extend(std::mem::take(&mut node.postponed));
        }
        resumed
    });
    for client in resumed {
        process::run_all(client);
        if node_state::with(|node| node.clients.get(&client).is_some_and(|entry| entry.peer_closed)) {
            node_state::with(|node| node.ready.push_back(client));
        }
    }
}
