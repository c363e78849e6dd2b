//! What only the server's main thread touches.

use std::cell::RefCell;
use std::mem;

/// A cell for a static of a module. A module that starts a thread must keep it away from here: nothing checks that, because
/// it would cost each look at the state more than the look.
pub struct MainThread<T>(RefCell<T>);

// SAFETY: the server makes every call into the module on its main thread; the module starts no thread and asks for no
// callback on another one.
unsafe impl<T> Sync for MainThread<T> {}

/// Defines the static in which a module keeps its state: `module_state!(STATE: State = State::new());`.
#[macro_export]
macro_rules! module_state {
    ($name:ident: $type:ty = $value:expr) => {
        pub static $name: $crate::server::MainThread<$type> = $crate::server::MainThread::new($value);
    };
}

impl<T> MainThread<T> {
    pub const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    /// Lends the value to `body`, which must call nothing of the server that can call back.
    ///
    /// # Panics
    /// If the value is lent already.
    #[inline(always)]
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        body(&mut self.0.borrow_mut())
    }

    /// Puts another value in its place.
    pub fn replace(&self, value: T) {
        // What is dropped may go back to the server, so not while the value is lent.
        drop(self.with(|old| mem::replace(old, value)));
    }
}
