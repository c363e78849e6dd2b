//! What the layer remembers between two calls of the server. Only the main thread uses it, so it consists of cells without a
//! lock.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis_module::raw;

use super::ClientId;
use super::acl::user::User;
use super::right::Server;
use super::string::OwnedString;
use super::timer::schedule::{ServerTimer, Timer};

/// The state of the layer. A field without the name of its writer is written when the module is loaded.
pub(super) struct ServerState {
    /// The thread that loads modules, 0 before the first load. [`is_main_thread`] reads it on any thread.
    main_thread: AtomicUsize,
    /// A context of the module's own, for calls outside of a callback; null while the module is not loaded. Written by the timer
    /// when it is installed and uninstalled.
    pub(super) own_context: Cell<*mut raw::RedisModuleCtx>,
    /// The function to call after a panic.
    pub(super) after_panic: Cell<Option<fn(&Server)>>,
    /// Whether the server replies to a blocked client through a stand-in client.
    pub(super) uses_stand_in: Cell<bool>,
    /// Whether the server is a node of a cluster.
    pub(super) in_cluster: Cell<bool>,
    /// The number of commands that the server had executed when the module was loaded, `None` if INFO does not say.
    pub(super) executed_at_load: Cell<Option<u64>>,
    /// Whether the module has subscribed to the events that waiters need. Written by `subscribe`.
    pub(super) hears_events: Cell<bool>,
    /// The same for changes of the server's role. Written by `subscribe_to_roles`.
    pub(super) hears_roles: Cell<bool>,
    /// The same for the events of Sorted Sets. Written by `subscribe_to_sorted_sets`.
    pub(super) hears_sorted_sets: Cell<bool>,
    /// The same for the iterations of the event loop. Written by `subscribe_to_iterations`.
    pub(super) hears_iterations: Cell<bool>,
    /// Whether there is, or was, another module that may listen to key events. Also written when the server loads or unloads one.
    pub(super) has_other_modules: Cell<bool>,
    /// The key whose next event this module is causing itself, else null. Written before and after each such event.
    pub(super) own_event: Cell<*const raw::RedisModuleString>,
    /// Whether the command that runs may be a part of another one, into whose reply Redis 7.0 would put a message. Written before
    /// and after each command.
    pub(super) is_inner_command: Cell<bool>,
    /// The client that was last found to have a connection, 0 for none. Written by `Context::has_connection`.
    pub(super) latest_connected: Cell<ClientId>,
    /// The channel that was found to have a subscriber in this event-loop iteration; empty if there is none. Written by
    /// `has_subscriber`, and emptied at the end of the iteration.
    pub(super) subscribed_channel: RefCell<Vec<u8>>,
    /// The argument `PXAT` of SET. Created by the first replication of a SET with an expiry time.
    pub(super) pxat: RefCell<Option<OwnedString>>,
    /// The user that gets the rules of one selector after the other. Created by the first check that needs it, and kept, because
    /// the server scans all clients when a user is freed.
    pub(super) scratch_user: RefCell<Option<User>>,
    /// The timer of the module. Written when it is set, when it fires, and by the server's cron.
    pub(super) timer: RefCell<Timer>,
    /// The server timer of zero length, which does the work of the timer. Written when it is set, and before and after it runs.
    pub(super) server_timer: Cell<ServerTimer>,
    /// The failpoints. Written by the command `FAILPOINT`, and by each entry that the server calls.
    #[cfg(feature = "failpoints")]
    pub(super) failpoints: RefCell<Failpoints>,
}

// SAFETY: only the server's main thread reaches the cells, because the server makes every call into the module there, and the
// module starts no thread and asks for no callback on another one. Other threads may read `main_thread`, which is an atomic.
unsafe impl Sync for ServerState {}

static STATE: ServerState = ServerState {
    main_thread: AtomicUsize::new(0),
    own_context: Cell::new(ptr::null_mut()),
    after_panic: Cell::new(None),
    uses_stand_in: Cell::new(false),
    in_cluster: Cell::new(false),
    executed_at_load: Cell::new(None),
    hears_events: Cell::new(false),
    hears_roles: Cell::new(false),
    hears_sorted_sets: Cell::new(false),
    hears_iterations: Cell::new(false),
    has_other_modules: Cell::new(false),
    own_event: Cell::new(ptr::null()),
    is_inner_command: Cell::new(false),
    latest_connected: Cell::new(0),
    subscribed_channel: RefCell::new(Vec::new()),
    pxat: RefCell::new(None),
    scratch_user: RefCell::new(None),
    timer: RefCell::new(Timer::new()),
    server_timer: Cell::new(ServerTimer::Off),
    #[cfg(feature = "failpoints")]
    failpoints: RefCell::new(Failpoints::NONE),
};

/// Returns the state of the layer. Call it on the main thread only.
#[inline(always)]
pub(super) fn state() -> &'static ServerState {
    debug_assert!(is_main_thread(), "the state of the layer is used on another thread");
    &STATE
}

/// Records that this is the main thread. Called when the module is loaded.
pub(super) fn set_main_thread() {
    debug_assert!(is_main_thread(), "the module is loaded on two threads");
    STATE.main_thread.store(this_thread(), Ordering::Relaxed);
}

/// Returns whether this is the main thread. Before the first load, any thread may be the main thread.
pub(super) fn is_main_thread() -> bool {
    [0, this_thread()].contains(&STATE.main_thread.load(Ordering::Relaxed))
}

/// Returns the number of the running thread, in musl its address. `std::thread` would allocate memory that outlives the
/// unloading of the module.
fn this_thread() -> usize {
    // SAFETY: takes nothing, and always succeeds.
    let thread = unsafe { libc::pthread_self() };
    thread as usize
}

impl ServerState {
    /// Resets the state and frees what it owns, except for the timer, which uninstalls itself. Called when the module is loaded,
    /// because a library that was unloaded may have stayed in memory, and when it is unloaded.
    pub(super) fn clear(&self) {
        let heard = [&self.hears_events, &self.hears_roles, &self.hears_sorted_sets, &self.hears_iterations];
        let flags = heard.into_iter().chain([&self.has_other_modules, &self.is_inner_command]);
        flags.for_each(|flag| flag.set(false));
        self.executed_at_load.set(None);
        self.own_event.set(ptr::null());
        self.latest_connected.set(0);
        self.subscribed_channel.take();
        self.pxat.take();
        self.scratch_user.take();
        self.server_timer.set(ServerTimer::Off);
    }
}

/// The failpoints of a build that has them.
#[cfg(feature = "failpoints")]
pub(super) struct Failpoints {
    /// The entry that panics next, and the number of the place in it.
    pub(super) armed: Option<(String, usize)>,
    /// The entries that run, each called inside the one before it, with the number of the next place in each.
    pub(super) running: Vec<(&'static str, usize)>,
    /// Whether an entry has run, and the environment was read.
    pub(super) has_begun: bool,
}

#[cfg(feature = "failpoints")]
impl Failpoints {
    pub(super) const NONE: Self = Self { armed: None, running: Vec::new(), has_begun: false };
}
