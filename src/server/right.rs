//! The right to use the server, by which the compiler keeps a module's state from being lent while the server may call back.

/// The right to use the server. Each call of the module has one: in its [`Context`](super::Context), or by itself.
///
/// The server may call the module back before a call returns. A function that may cause that takes the right, a context or a
/// key by `&mut`. The state of the module is lent for a `&Server`, so no such function can be called during that time.
///
/// ```compile_fail
/// use redis_lock::server::{BlockedClientId, Module, Server, unblock};
///
/// fn end<M: Module>(server: &mut Server, id: BlockedClientId) {
///     M::state().with(server, |_state| unblock::<M>(server, id));
/// }
/// ```
pub struct Server(());

impl Server {
    /// Creates the right, for one call of the module.
    pub(super) fn new() -> Self {
        Self(())
    }
}
