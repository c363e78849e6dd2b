//! Everything that a server can do to a module.
//!
//! What holds a module back from mistakes is in the types. A key borrows the context, and what was read from a key ends
//! before the next write:
//!
//! ```no_run
//! use redis_lock::server::{Context, Mode, StringRef};
//!
//! fn empty<M>(ctx: &mut Context<'_, M>, name: StringRef<'_>) -> usize {
//!     let mut key = ctx.open(name, Mode::Write);
//!     let len = key.string().len();
//!     key.delete();
//!     ctx.select_db(1);
//!     len
//! }
//! ```
//!
//! Bytes do not outlive the value that they were read from:
//!
//! ```compile_fail
//! use redis_lock::server::{Context, Mode, StringRef};
//!
//! fn empty<M>(ctx: &mut Context<'_, M>, name: StringRef<'_>) -> usize {
//!     let mut key = ctx.open(name, Mode::Write);
//!     let bytes = key.string();
//!     key.delete();
//!     bytes.len()
//! }
//! ```
//!
//! Nothing that can call back is called while a key is open:
//!
//! ```compile_fail
//! use redis_lock::server::{Context, Mode, StringRef};
//!
//! fn empty<M>(ctx: &mut Context<'_, M>, name: StringRef<'_>) -> bool {
//!     let key = ctx.open(name, Mode::Write);
//!     ctx.slot_of(name);
//!     key.is_empty()
//! }
//! ```
//!
//! And a context is not kept:
//!
//! ```compile_fail
//! use redis_lock::server::Context;
//!
//! fn twice<'c, M>(ctx: &Context<'c, M>) -> Context<'c, M> {
//!     *ctx
//! }
//! ```

use std::ffi::CStr;

use super::{BlockedClient, ClientId, Command, Context, EventName, MainThread, Replier, Setting, StringRef, Ticket};

/// A module, as the server sees it. Each function is called on the server's main thread; a panic in one is caught and
/// logged. What a module does not care for need not be written.
pub trait Module: Sized + 'static {
    /// The name of the module: the first half of its settings.
    const NAME: &'static CStr;

    /// Its version, as decimal numbers between points.
    const VERSION: &'static str;

    /// The server's commands that it calls, or has replicas run, by these names.
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[];

    /// What can be set by `CONFIG SET` and in the configuration file.
    const SETTINGS: &'static [&'static Setting] = &[];

    /// What it remembers between two calls.
    type State: 'static;

    /// The state of this server's module.
    fn state() -> &'static MainThread<Self::State>;

    /// A state that remembers nothing.
    fn new_state() -> Self::State;

    /// The blocked client that [`Key::block`](super::Key::block) gave for this ticket, if the module still has it.
    fn blocked_client(state: &mut Self::State, ticket: Ticket) -> Option<&mut BlockedClient>;

    /// Its commands.
    fn commands() -> Vec<Command>;

    /// The fields of its section of `INFO`, to which the server adds the module's name in front.
    fn info(_state: &mut Self::State) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// The module is loaded.
    fn loaded(_ctx: &mut Context<'_, Self>) {}

    /// Whether the module may be unloaded.
    ///
    /// # Errors
    /// Says why not.
    fn may_unload(_state: &mut Self::State) -> Result<(), &'static str> {
        Ok(())
    }

    /// The timer fires that [`fire`](super::fire) or [`fire_at`](super::fire_at) has set. It may do so early.
    fn timer(_ctx: &mut Context<'_, Self>) {}

    /// Something has happened to a key that was not this module's own doing. Nothing may be written here: it would reach
    /// replicas before the command that caused the event.
    fn key_event(_ctx: &Context<'_, Self>, _event: EventName<'_>, _key: StringRef<'_>) {}

    /// Any key may have changed without an event of its own: a database was emptied, two were exchanged, or all were loaded.
    fn keyspace_changed() {}

    /// The server has become a master or a replica.
    fn role_changed() {}

    /// A connection is closed.
    fn client_closed(_client: ClientId) {}

    /// The server wants the reply for a blocked client, which is unblocked. It asks once, perhaps inside
    /// [`unblock`](super::unblock), so there is nothing but the reply to be made here.
    fn answer(reply: &mut Replier<'_>, ticket: Ticket);

    /// A client is not blocked any more, and the server does not ask for a reply (again): the connection closed, or the
    /// server answered by itself. `told` is `false` if it was certainly not sent what [`answer`](Self::answer) replied.
    fn left(_ctx: &Context<'_, Self>, _ticket: Ticket, _told: bool) {}

    /// The server lets a blocked client go, once for each; otherwise like [`left`](Self::left). Its [`BlockedClient`] is of
    /// no use any more.
    fn freed(ctx: &Context<'_, Self>, ticket: Ticket, told: bool);
}
