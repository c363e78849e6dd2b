//! Driving a simulated server from outside: what arrives, what time it is, what befalls it.

mod slots;

use super::blocked;
use super::client::{Client, Sent};
use super::event_log::{LoggedEvent, Tag};
use super::expiry;
use super::faults::{self, Fault};
use super::keyspace::Keyspace;
use super::kind::ServerKind;
use super::module::Module;
use super::module_hooks::{self, ModuleHooks};
use super::native;
use super::node_state::{self, NodeState};
use super::process;
use super::stream::Unit;
use super::write_blockers::{Unnoticed, WriteFence};
use super::{ClientId, UnixMs};

/// One simulated server with a module in it. All nodes of a thread share the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(usize);

impl Node {
    /// A server with nothing in it, beside those there are, which has started with the module.
    pub fn new<M: Module>(kind: ServerKind) -> Self {
        let node = Self(node_state::add(NodeState::new(kind, ModuleHooks::of::<M>())));
        node.start();
        node
    }

    /// The server loads the module, before anybody is connected.
    fn start(self) {
        node_state::switch_to(self.0);
        module_hooks::notify_always(|hooks| (hooks.loaded)());
    }

    /// Forgets all servers of this thread, and begins a new time.
    pub fn forget_all() {
        node_state::forget();
        super::main_thread::forget();
        super::setting::forget();
    }

    /// Lets time pass on all nodes, in microseconds, in which none of them does anything.
    pub fn pass_us(us: i64) {
        node_state::pass_us(us);
    }

    fn here<R>(self, body: impl FnOnce(&mut NodeState) -> R) -> R {
        node_state::switch_to(self.0);
        node_state::with(body)
    }

    /// Now, by this node's clock, in Unix milliseconds.
    pub fn now_ms(self) -> UnixMs {
        self.here(|node| node.now_ms())
    }

    /// Opens a connection.
    pub fn connect(self) -> ClientId {
        self.here(|node| {
            node.last_client = node.last_client.saturating_add(1);
            node.clients.insert(node.last_client, Client::default());
            node.last_client
        })
    }

    /// Sends a command. It is read in the next round.
    pub fn send(self, client: ClientId, tag: Tag, words: Vec<Vec<u8>>) {
        self.here(|node| {
            if let Some(entry) = node.clients.get_mut(&client).filter(|entry| !entry.peer_closed) {
                entry.input.push_back(Sent { tag, words });
                node.ready.push_back(client);
            }
        });
    }

    /// Closes a connection from the client's side. What it has sent is run, what it is told is lost.
    pub fn hang_up(self, client: ClientId) {
        self.here(|node| {
            if let Some(entry) = node.clients.get_mut(&client) {
                entry.peer_closed = true;
                node.ready.push_back(client);
            }
        });
    }

    /// Whether the connection is open at the server's end.
    pub fn has(self, client: ClientId) -> bool {
        self.here(|node| node.clients.contains_key(&client))
    }

    /// When the loop turns next by itself: at once if there is something to do.
    pub fn next_wake(self) -> Option<UnixMs> {
        self.here(|node| {
            let busy =
                !node.ready.is_empty() || !node.unblocked.is_empty() || !node.resumed.is_empty() || node.timer.started;
            let pause_ends = node.blockers.paused_until.filter(|_| !node.postponed.is_empty());
            if busy { Some(UnixMs::MIN) } else { [node.timer.set_to, pause_ends].into_iter().flatten().min() }
        })
    }

    /// Lets the event loop turn once: what has arrived, the timer, what is due before it sleeps.
    pub fn turn(self) {
        node_state::switch_to(self.0);
        module_hooks::tell_late_events();
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
        node_state::with(|node| node.note(LoggedEvent::IterationEnded));
    }

    /// What has happened since the last call.
    pub fn event_log(self) -> Vec<LoggedEvent> {
        self.here(|node| std::mem::take(&mut node.event_log))
    }

    /// What replicas and the AOF were told since the last call.
    pub fn stream(self) -> Vec<Unit> {
        self.here(|node| std::mem::take(&mut node.stream))
    }

    /// All keys.
    pub fn keyspace(self) -> Keyspace {
        self.here(|node| node.keyspace.clone())
    }

    /// The fields that the module adds to INFO.
    pub fn info(self) -> Vec<(String, u64)> {
        let hooks = self.here(|node| node.hooks);
        (hooks.info)()
    }

    /// Lends the module on this node to `body`.
    pub fn with_module<R>(self, body: impl FnOnce() -> R) -> R {
        node_state::switch_to(self.0);
        body()
    }

    /// The server's cron runs, as it does every `interval_ms` milliseconds.
    pub fn cron(self, interval_ms: i64) {
        let hooks = self.here(|node| node.hooks);
        if !faults::has(Fault::CronStops) {
            (hooks.cron)(interval_ms);
        }
    }

    /// The server deletes a key that expires to make room, if it may.
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

    /// The server's cycle deletes up to `limit` keys that have expired.
    pub fn expire_some(self, limit: usize) {
        node_state::switch_to(self.0);
        expiry::cycle(limit);
    }

    /// Sets the node's clock forward, or back, by so many milliseconds.
    pub fn step_clock(self, ms: i64) {
        self.here(|node| {
            node.clock_offset_ms = node.clock_offset_ms.saturating_add(ms);
            // A step ends the descriptor's wait.
            node.timer.set_to = node.timer.set_to.map(|_| UnixMs::MIN);
        });
    }

    /// The server notes that it must refuse writes, or need not any more.
    pub fn set_fence(self, fence: Option<WriteFence>) {
        self.here(|node| node.blockers.fence = fence);
    }

    /// Begins or ends a save without a fork, which reads all keys.
    pub fn save_without_fork(self, saves: bool) {
        self.here(|node| node.blockers.saves_without_fork = saves);
    }

    /// Lets the server refuse what the module replicates outside of commands, or not any more.
    pub fn refuse_replication(self, refuses: bool) {
        self.here(|node| node.blockers.replicates_nothing = refuses);
    }

    /// Something happens while the server stands still, so that it does not notice before its cron has run.
    pub fn change_unnoticed(self, change: Unnoticed) {
        self.here(|node| node.blockers.unnoticed = Some(change));
    }

    /// The server notices what has happened while it stood still.
    pub fn notice(self) {
        let change = self.here(|node| node.blockers.unnoticed.take());
        match change {
            Some(Unnoticed::NoReplicas) => self.set_fence(Some(WriteFence::NoReplicas)),
            Some(Unnoticed::Replaced) => self.become_replica(),
            None => {}
        }
    }

    /// The server becomes a replica: those who wait are told, and their connections closed.
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

    /// Whether the server is a replica.
    pub fn is_replica(self) -> bool {
        self.here(|node| node.blockers.replica)
    }

    /// The command by which modules could ask for the server's settings has another name from now on.
    pub fn hide_settings(self) {
        super::setting::hide();
    }

    /// The server becomes a master, if it is none.
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
            module_hooks::notify_always(|hooks| (hooks.role_changed)(!replica));
        }
    }

    /// Another keyspace takes the place of this one: a replica has synchronized.
    pub fn load(self, keyspace: Keyspace) {
        self.here(|node| {
            node.keyspace = keyspace;
            node.note_keyspace();
        });
        module_hooks::notify(|hooks| (hooks.keyspace_changed)());
    }

    /// Runs what the master has told, as its replica.
    pub fn replay(self, unit: &Unit) {
        node_state::switch_to(self.0);
        unit.iter().for_each(native::replay);
    }

    /// Runs a command by itself, whatever stands in its way.
    pub fn external_command(self, db: i32, words: &[Vec<u8>]) {
        node_state::switch_to(self.0);
        process::external_command(db, words);
    }

    /// The process ends and another begins with these keys.
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

/// Reads what a client has sent. One that has closed is closed here when that was run.
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
        node_state::with(|node| node.note(LoggedEvent::TimerBegan));
        let hooks = node_state::hooks();
        (hooks.timer)();
        node_state::with(|node| {
            node.propagate();
            node.note(LoggedEvent::TimerEnded);
        });
    }
}

/// Clients that are not blocked or paused any more go on with what they have sent.
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
