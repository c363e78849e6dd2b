//! The trait of a module: everything that a server can do to it.
//!
//! The types rule out mistakes. A key borrows the context, and what was read from a key ends before the next write:
//!
//! ```no_run
//! use redis_lock::server::{Context, Mode, StringRef};
//!
//! fn empty<M>(ctx: &mut Context<'_, M>, name: StringRef<'_>) -> usize {
//!     let mut key = ctx.open(name, Mode::Write);
//!     let len = key.string().len();
//!     key.delete();
//!     drop(key);
//!     ctx.select_db(1);
//!     len
//! }
//! ```
//!
//! So bytes cannot outlive the value that they were read from:
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
//! Nothing that can call back can be called while a key is open:
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
//! And a context cannot be kept:
//!
//! ```compile_fail
//! use redis_lock::server::Context;
//!
//! fn twice<'c, M>(ctx: &Context<'c, M>) -> Context<'c, M> {
//!     *ctx
//! }
//! ```

use std::ffi::CStr;

use super::{
    BlockedClient, BlockedClientId, ClientId, Command, Context, EventName, MainThread, Replier, Setting, StringRef,
};

/// A module, as the server sees it.
///
/// Each function is called on the server's main thread. A panic in one is caught and logged, and
/// [`panicked`](Self::panicked) is told. Functions with a default are optional.
pub trait Module: Sized + 'static {
    /// The name of the module, which prefixes the names of its settings.
    const NAME: &'static CStr;

    /// The version of the module: decimal numbers, separated by dots.
    const VERSION: &'static str;

    /// The commands of the server that the module calls or replicates. The module is not loaded if one of them was
    /// renamed.
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[];

    /// The same, of commands that the module needs in a cluster only.
    const NEEDED_IN_CLUSTER: &'static [&'static CStr] = &[];

    /// The settings of the module, for `CONFIG SET` and the configuration file.
    const SETTINGS: &'static [&'static Setting] = &[];

    /// What the module remembers between two calls.
    type State: 'static;

    /// Returns the cell that holds the state.
    fn state() -> &'static MainThread<Self::State>;

    /// Returns an empty state.
    fn new_state() -> Self::State;

    /// Returns the client that [`Key::block`](super::Key::block) returned for this id, if the module still has it.
    fn blocked_client(state: &mut Self::State, id: BlockedClientId) -> Option<&mut BlockedClient>;

    /// Returns the descriptions of the commands.
    fn commands() -> Vec<Command>;

    /// Returns the fields of the module's section in `INFO`. The server prefixes their names with the module's name.
    fn info(_state: &mut Self::State) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Called when the module is loaded.
    fn loaded(_ctx: &mut Context<'_, Self>) {}

    /// Called when the server is about to unload the module.
    ///
    /// # Errors
    ///
    /// The reason why the module must not be unloaded.
    fn may_unload(_state: &mut Self::State) -> Result<(), &'static str> {
        Ok(())
    }

    /// Called after a panic was caught in any other function, perhaps inside another call: what the module remembers may
    /// be changed in part. A client whose command panicked is told so, unless it is blocked.
    fn panicked() {}

    /// Called when a setting may have another value.
    fn setting_changed() {}

    /// Called at the time that was given to [`set_timer`](super::set_timer), or earlier, and after
    /// [`run_timer_soon`](super::run_timer_soon).
    fn timer(_ctx: &mut Context<'_, Self>) {}

    /// Called when the server's cron runs, as it does every `interval_ms` milliseconds.
    fn cron(_interval_ms: i64) {}

    /// Called when something has happened to a key that this module has not done itself.
    ///
    /// Nothing may be written here: it would reach replicas before the command that caused the event.
    fn key_event(_ctx: &Context<'_, Self>, _event: EventName<'_>, _key: StringRef<'_>) {}

    /// Called when any key may have changed without an event: a database was flushed, two were swapped, or all were
    /// reloaded.
    fn keyspace_changed() {}

    /// Called when the server has become a master or a replica.
    fn role_changed(_is_master: bool) {}

    /// Called when a connection has closed.
    fn client_closed(_client: ClientId) {}

    /// Makes the reply to a blocked client that was unblocked.
    ///
    /// The server asks once for each client, perhaps inside [`unblock`](super::unblock), so nothing but the reply may
    /// be made here.
    fn answer(reply: &mut Replier<'_>, id: BlockedClientId);

    /// Called when a client is not blocked any more and the server does not ask for a reply, or not again: its
    /// connection has closed, or the server has answered by itself.
    ///
    /// `told` is `false` if the reply of [`answer`](Self::answer) was certainly not sent.
    fn disconnected(_ctx: &Context<'_, Self>, _id: BlockedClientId, _replied: bool) {}

    /// Called once for each blocked client, when the server frees it. Its [`BlockedClient`] is of no use any more.
    ///
    /// `told` is as in [`left`](Self::left). Valkey also says `false` of one who was answered after CLIENT UNBLOCK.
    fn freed(ctx: &Context<'_, Self>, id: BlockedClientId, replied: bool);
}
