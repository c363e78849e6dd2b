//! Lends the state of a module in a call of the server.

use super::{Context, Key, Module};

impl<M: Module> Context<'_, M> {
    /// Lends the state of the module to `body`.
    ///
    /// # Panics
    ///
    /// If the state is lent already.
    #[inline(always)]
    pub fn with_state<R>(&self, body: impl FnOnce(&mut M::State) -> R) -> R {
        M::state().with(self.server(), body)
    }
}

impl<M: Module> Key<'_, '_, M> {
    /// Lends the state of the module to `body`, as [`Context::with_state`] does.
    #[inline(always)]
    pub fn with_state<R>(&self, body: impl FnOnce(&mut M::State) -> R) -> R {
        self.ctx().with_state(body)
    }
}
