//! State of a module that only the server's main thread uses.

use std::cell::RefCell;
use std::mem;

use super::right::Server;
use super::state::is_main_thread;

/// A cell for a static of a module. [`module_state!`](crate::module_state) defines such a static.
///
/// No other thread may use it. Only debug builds check that, because a check costs more than the access.
pub struct MainThread<T>(RefCell<T>);

// SAFETY: the server makes every call into the module on its main thread; the module starts no thread and asks for no
// callback on another one.
unsafe impl<T> Sync for MainThread<T> {}

/// Defines the static that holds a module's state: `module_state!(STATE: State = State::new());`.
#[macro_export]
macro_rules! module_state {
    ($name:ident: $type:ty = $value:expr) => {
        pub static $name: $crate::server::MainThread<$type> = $crate::server::MainThread::new($value);
    };
}

impl<T> MainThread<T> {
    /// Creates a cell.
    pub const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Lends the value to `body`.
    ///
    /// # Panics
    ///
    /// If the value is lent already.
    #[inline(always)]
    pub fn with<R>(&self, _server: &Server, body: impl FnOnce(&mut T) -> R) -> R {
        debug_assert!(is_main_thread(), "the state of a module is used on another thread");
        let mut lent = self.0.borrow_mut();
        let result = body(&mut lent);
        #[cfg(feature = "failpoints")]
        super::failpoints::pass();
        result
    }

    /// Replaces the value.
    ///
    /// # Panics
    ///
    /// If the value is lent.
    pub fn replace(&self, value: T) {
        // The old value may call the server when it is dropped, so it is not dropped while the value is lent.
        drop(self.with(&Server::new(), |old| mem::replace(old, value)));
    }
}
