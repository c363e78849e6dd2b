//! Driving a simulated server from outside: what arrives, what time it is, what befalls it.

mod slots;

use super::blocked;
use super::client::{Client, Sent};
use super::doors::{self, Doors};
use super::expiry;
use super::journal::{Note, Tag};
use super::keyspace::Keyspace;
use super::kind::ServerKind;
use super::module::Module;
use super::native;
use super::obstacle::{Unnoticed, WriteFence};
use super::process;
use super::stream::Unit;
use super::world::{self, World};
use super::{ClientId, UnixMs};

/// One simulated server with a module in it. All nodes of a thread share the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(usize);

impl Node {
    /// A server with nothing in it, beside those there are, which has started with the module.
    pub fn new<M: Module>(kind: ServerKind) -> Self {
        let node = Self(world::add(World::new(kind, Doors::of::<M>())));
        node.start();
        node
    }

    /// The server loads the module, before anybody is connected.
    fn start(self) {
        world::switch_to(self.0);
        doors::tell_always(|doors| (doors.loaded)());
    }

    /// Forgets all servers of this thread, and begins a new time.
    pub fn forget_all() {
        world::forget();
        super::main_thread::forget();
        super::setting::forget();
    }

    /// Lets time pass on all nodes, in microseconds, in which none of them does anything.
    pub fn pass_us(us: i64) {
        world::pass_us(us);
    }

    fn here<R>(self, body: impl FnOnce(&mut World) -> R) -> R {
        world::switch_to(self.0);
        world::with(body)
    }

    /// Now, by this node's clock, in Unix milliseconds.
    pub fn now_ms(self) -> UnixMs {
        self.here(|world| world.now_ms())
    }

    /// Opens a connection.
    pub fn connect(self) -> ClientId {
        self.here(|world| {
            world.last_client = world.last_client.saturating_add(1);
            world.clients.insert(world.last_client, Client::default());
            world.last_client
        })
    }

    /// Sends a command. It is read in the next round.
    pub fn send(self, client: ClientId, tag: Tag, words: Vec<Vec<u8>>) {
        self.here(|world| {
            if let Some(entry) = world.clients.get_mut(&client).filter(|entry| !entry.peer_closed) {
                entry.input.push_back(Sent { tag, words });
                world.ready.push_back(client);
            }
        });
    }

    /// Closes a connection from the client's side. What it has sent is run, what it is told is lost.
    pub fn hang_up(self, client: ClientId) {
        self.here(|world| {
            if let Some(entry) = world.clients.get_mut(&client) {
                entry.peer_closed = true;
                world.ready.push_back(client);
            }
        });
    }

    /// Whether the connection is open at the server's end.
    pub fn has(self, client: ClientId) -> bool {
        self.here(|world| world.clients.contains_key(&client))
    }

    /// When the loop turns next by itself: at once if there is something to do.
    pub fn next_wake(self) -> Option<UnixMs> {
        self.here(|world| {
            let busy =
                !world.ready.is_empty() || !world.let_go.is_empty() || !world.resumed.is_empty() || world.timer.started;
            let pause_ends = world.obstacles.paused_until.filter(|_| !world.postponed.is_empty());
            if busy { Some(UnixMs::MIN) } else { [world.timer.set_to, pause_ends].into_iter().flatten().min() }
        })
    }

    /// Lets the event loop turn once: what has arrived, the timer, what is due before it sleeps.
    pub fn turn(self) {
        world::switch_to(self.0);
        let ready = world::with(|world| std::mem::take(&mut world.ready));
        ready.into_iter().for_each(read);
        run_timer();
        blocked::free_all();
        resume();
        world::with(|world| {
            world.propagate();
            world.send_output();
        });
        let closing: Vec<ClientId> = world::with(|world| {
            let closing = |entry: &Client| entry.closing && entry.output.is_empty();
            world.clients.iter().filter(|(_, entry)| closing(entry)).map(|(&client, _)| client).collect()
        });
        closing.into_iter().for_each(blocked::close);
        world::with(|world| world.note(Note::Round));
    }

    /// What has happened since the last call.
    pub fn journal(self) -> Vec<Note> {
        self.here(|world| std::mem::take(&mut world.journal))
    }

    /// What replicas and the AOF were told since the last call.
    pub fn stream(self) -> Vec<Unit> {
        self.here(|world| std::mem::take(&mut world.stream))
    }

    /// All keys.
    pub fn keyspace(self) -> Keyspace {
        self.here(|world| world.keyspace.clone())
    }

    /// The fields that the module adds to INFO.
    pub fn info(self) -> Vec<(String, u64)> {
        let doors = self.here(|world| world.doors);
        (doors.info)()
    }

    /// Lends the module on this node to `body`.
    pub fn with_module<R>(self, body: impl FnOnce() -> R) -> R {
        world::switch_to(self.0);
        body()
    }

    /// The server's cron runs, as it does every `interval_ms` milliseconds.
    pub fn cron(self, interval_ms: i64) {
        let doors = self.here(|world| world.doors);
        (doors.cron)(interval_ms);
    }

    /// The server deletes a key that expires to make room, if it may.
    pub fn evict(self, db: i32, key: &[u8]) {
        let is_evicted = self.here(|world| {
            let is_volatile = world.keyspace.get(db, key).is_some_and(|entry| entry.expiry.is_some());
            is_volatile && !world.obstacles.replica && !world.obstacles.is_paused(world.now_ms())
        });
        if is_evicted {
            native::evict(db, key);
            self.here(World::propagate);
        }
    }

    /// The server's cycle deletes up to `limit` keys that have expired.
    pub fn expire_some(self, limit: usize) {
        world::switch_to(self.0);
        expiry::cycle(limit);
    }

    /// Sets the node's clock forward, or back, by so many milliseconds.
    pub fn step_clock(self, ms: i64) {
        self.here(|world| {
            world.clock_offset_ms = world.clock_offset_ms.saturating_add(ms);
            // A step ends the descriptor's wait.
            world.timer.set_to = world.timer.set_to.map(|_| UnixMs::MIN);
        });
    }

    /// The server notes that it must refuse writes, or need not any more.
    pub fn set_fence(self, fence: Option<WriteFence>) {
        self.here(|world| world.obstacles.fence = fence);
    }

    /// Begins or ends a save without a fork, which reads all keys.
    pub fn save_without_fork(self, saves: bool) {
        self.here(|world| world.obstacles.saves_without_fork = saves);
    }

    /// Lets the server refuse what the module replicates outside of commands, or not any more.
    pub fn refuse_replication(self, refuses: bool) {
        self.here(|world| world.obstacles.replicates_nothing = refuses);
    }

    /// Something happens while the server stands still, so that it does not notice before its cron has run.
    pub fn change_unnoticed(self, change: Unnoticed) {
        self.here(|world| world.obstacles.unnoticed = Some(change));
    }

    /// The server notices what has happened while it stood still.
    pub fn notice(self) {
        let change = self.here(|world| world.obstacles.unnoticed.take());
        match change {
            Some(Unnoticed::NoReplicas) => self.set_fence(Some(WriteFence::NoReplicas)),
            Some(Unnoticed::Replaced) => self.become_replica(),
            None => {}
        }
    }

    /// The server becomes a replica: those who wait are told, and their connections closed.
    pub fn become_replica(self) {
        let blocked: Vec<_> = self
            .here(|world| world.clients.iter().filter_map(|(&client, entry)| Some((client, entry.blocked?))).collect());
        for (client, id) in blocked.into_iter().filter(|&(_, id)| blocked::dismiss(id)) {
            blocked::refuse(
                id,
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            );
            self.here(|world| world.clients.get_mut(&client).map(|entry| entry.closing = true));
        }
        self.set_role(true);
    }

    /// Whether the server is a replica.
    pub fn is_replica(self) -> bool {
        self.here(|world| world.obstacles.replica)
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
        self.here(|world| {
            world.obstacles.replica = replica;
            world.obstacles.unnoticed = None;
            world.note(Note::RoleChanged);
        });
        if self.here(|world| world.obstacles.shows_role()) {
            doors::tell_always(|doors| (doors.role_changed)(!replica));
        }
    }

    /// Another keyspace takes the place of this one: a replica has synchronized.
    pub fn load(self, keyspace: Keyspace) {
        self.here(|world| {
            world.keyspace = keyspace;
            world.note_keyspace();
        });
        doors::tell(|doors| (doors.keyspace_changed)());
    }

    /// Runs what the master has told, as its replica.
    pub fn replay(self, unit: &Unit) {
        world::switch_to(self.0);
        unit.iter().for_each(native::replay);
    }

    /// Runs a command by itself, whatever stands in its way.
    pub fn foreign(self, db: i32, words: &[Vec<u8>]) {
        world::switch_to(self.0);
        process::foreign(db, words);
    }

    /// The process ends and another begins with these keys.
    pub fn restart(self, keyspace: Keyspace) {
        let (kind, last_client) = self.here(|world| (world.kind, world.last_client));
        let doors = world::doors();
        (doors.forget)();
        self.here(|world| {
            let (offset, cluster) = (world.clock_offset_ms, world.cluster.clone());
            let (replica, journal) = (world.obstacles.replica, std::mem::take(&mut world.journal));
            *world = World { last_client, cluster, clock_offset_ms: offset, ..World::new(kind, doors) };
            (world.obstacles.replica, world.journal) = (replica, journal);
            world.note(Note::Restarted);
        });
        self.start();
        self.here(|world| world.keyspace = keyspace);
    }
}

/// Reads what a client has sent. One that has closed is closed here when that was run.
fn read(client: ClientId) {
    let (is_new, peer_closed) = world::with(|world| {
        let is_postponed = world.postponed.contains(&client);
        match world.clients.get(&client) {
            Some(entry) => (entry.is_free() && !entry.input.is_empty() && !is_postponed, entry.peer_closed),
            None => (false, false),
        }
    });
    if is_new {
        process::run_all(client);
        if peer_closed {
            world::with(|world| world.ready.push_back(client));
        }
    } else if peer_closed {
        blocked::close(client);
    }
}

fn run_timer() {
    let is_due = world::with(|world| {
        let now = world.now_ms();
        let timer = &mut world.timer;
        let expired = timer.set_to.take_if(|set_to| *set_to <= now).is_some();
        std::mem::take(&mut timer.started) || expired
    });
    if is_due {
        world::with(|world| world.note(Note::TimerBegan));
        let doors = world::doors();
        (doors.timer)();
        world::with(|world| {
            world.propagate();
            world.note(Note::TimerEnded);
        });
    }
}

/// Clients that are not blocked or paused any more go on with what they have sent.
fn resume() {
    let resumed = world::with(|world| {
        let mut resumed = std::mem::take(&mut world.resumed);
        if !world.obstacles.is_paused(world.now_ms()) {
            resumed.extend(std::mem::take(&mut world.postponed));
        }
        resumed
    });
    for client in resumed {
        process::run_all(client);
        if world::with(|world| world.clients.get(&client).is_some_and(|entry| entry.peer_closed)) {
            world::with(|world| world.ready.push_back(client));
        }
    }
}
