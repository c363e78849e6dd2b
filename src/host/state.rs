//! All that the module remembers between two calls.

use std::cell::RefCell;
use std::{mem, ptr};

use redis_module::raw::RedisModuleString;

use super::alarm::Alarm;
use super::blocked::BlockedClients;
use super::text::Word;
use crate::core::{Sessions, StallWatch, Stats, TakeBacks, WaitingRoom};

/// The module's memory. A lock that nobody waits for and that has no session leaves nothing here.
pub struct State {
    pub room: WaitingRoom,
    pub blocked: BlockedClients,
    pub sessions: Sessions,
    /// Locks that are to be taken from connections that are gone.
    pub take_backs: TakeBacks,
    pub alarm: Alarm,
    pub stats: Stats,
    /// The name, as the server's string, of the key whose next event is of our own making; null: of none.
    pub own_event: *const RedisModuleString,
    /// On while there is anything to do.
    pub stall: StallWatch,
    /// The server gives an answer to a blocked client by way of a stand-in, as Valkey does.
    pub answers_by_stand_in: bool,
    /// The server tells us what happens to keys, databases and connections.
    pub listens: bool,
    /// There is, or was, a module besides ours, which may listen to key events.
    pub other_modules: bool,
    /// `PXAT`, once it was needed.
    pub pxat: Option<Word>,
}

impl State {
    const fn new() -> Self {
        Self {
            room: WaitingRoom::new(),
            blocked: BlockedClients::new(),
            sessions: Sessions::new(),
            take_backs: TakeBacks::new(),
            alarm: Alarm::new(),
            stats: Stats::new(),
            own_event: ptr::null(),
            stall: StallWatch::new(),
            answers_by_stand_in: false,
            listens: false,
            other_modules: false,
            pxat: None,
        }
    }

    /// Whether this is the event that we are about to cause ourselves; if so, it is expected no more.
    pub fn take_own_event(&mut self, key: *const RedisModuleString) -> bool {
        let ours = ptr::eq(self.own_event, key);
        if ours {
            self.own_event = ptr::null();
        }
        ours
    }

    /// Forgets what only a master may act on, as its reign begins or ends: the leases run on.
    pub fn retire(&mut self) {
        self.take_backs.clear();
        self.sessions.end_all();
        self.room.drop_away();
    }

    /// Whether a connection owns a lock, or has owned one that is not given up yet.
    pub fn has_owners(&self) -> bool {
        !self.sessions.is_empty() || !self.take_backs.is_empty()
    }

    /// Whether there may be something to write of the module's own accord: somebody waits, or a connection owns a lock.
    pub fn may_write(&self) -> bool {
        self.room.waiting() > 0 || self.has_owners()
    }

    /// Whether nobody waits for any lock, and no lock belongs to a connection that is there or was.
    pub fn is_idle(&self) -> bool {
        self.room.is_empty() && self.sessions.is_empty() && self.take_backs.is_empty()
    }
}

/// A cell that only the server's main thread touches.
struct MainThread<T>(RefCell<T>);

// SAFETY: the server makes every call into the module on its main thread; the module starts no thread and asks for no
// callback on another one.
unsafe impl<T> Sync for MainThread<T> {}

static STATE: MainThread<State> = MainThread(RefCell::new(State::new()));

/// Lends the state to `body`, which must not call the server: the server may call back, and the state is lent once.
pub fn with<R>(body: impl FnOnce(&mut State) -> R) -> R {
    body(&mut STATE.0.borrow_mut())
}

/// Begins anew, when the module is loaded or unloaded.
pub fn reset() {
    // What is forgotten goes back to the server, so not while the state is lent.
    drop(with(|state| mem::replace(state, State::new())));
}
