//! The state of a module, which each node has for itself.

use std::any::Any;
use std::cell::RefCell;

use super::node_state;

thread_local! {
    static STATES: RefCell<Vec<Option<Box<dyn Any>>>> = const { RefCell::new(Vec::new()) };
}

/// The right to use the server. The state of a module is lent for a `&Server`, so that in that time no function can be called
/// that takes the right, a context or a key by `&mut`.
pub struct Server(());

impl Server {
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Returns the right for a test that reads the state between two calls of the module.
    pub fn between_calls() -> Self {
        Self::new()
    }
}

/// A cell for a static of a module, with one value for each node.
pub struct MainThread<T: 'static>(fn() -> T);

/// Defines the static in which a module keeps its state: `module_state!(STATE: State = State::new());`.
#[macro_export]
macro_rules! module_state {
    ($name:ident: $type:ty = $value:expr) => {
        pub static $name: $crate::server::MainThread<$type> = $crate::server::MainThread::new(|| $value);
    };
}

impl<T: 'static> MainThread<T> {
    pub const fn new(make: fn() -> T) -> Self {
        Self(make)
    }

    /// Lends the value of the current node to `body`.
    ///
    /// # Panics
    /// If the value is already lent.
    pub fn with<R>(&self, _server: &Server, body: impl FnOnce(&mut T) -> R) -> R {
        let node = node_state::current();
        let taken = STATES.with_borrow_mut(|states| {
            if states.len() <= node {
                states.resize_with(node.saturating_add(1), || None);
            }
            states.get_mut(node).and_then(|state| state.replace(Box::new(Lent)))
        });
        let mut state = taken.unwrap_or_else(|| Box::new((self.0)()));
        let lent = state.downcast_mut().map(body);
        STATES.with_borrow_mut(|states| states.get_mut(node).map(|place| *place = Some(state)));
        #[expect(clippy::expect_used, reason = "a module that borrows its state twice is to be found here")]
        lent.expect("the state is lent once")
    }

    /// Replaces the value of the current node.
    pub fn replace(&self, value: T) {
        self.with(&Server::new(), |old| *old = value);
    }
}

/// The value that is stored instead of a state while the state is lent.
struct Lent;

/// Removes the states of all nodes.
pub(super) fn forget() {
    STATES.with_borrow_mut(Vec::clear);
}
