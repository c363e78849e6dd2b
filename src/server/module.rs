//! The trait of a module, which lists every call that a server makes to it.
//!
//! The types exclude mistakes. A key borrows the context, and bytes that were read from a key end before the next write:
//!
//! ```no_run
//! use redis_lock::server::{Context, Mode, StringRef};
//!
//! fn empty<M>(ctx: &mut Context<'_, M>, name: StringRef<'_>) -> usize {
//!     let mut key = ctx.open(name, Mode::Write);
//!     let len = key.string().len();
//!     key.delete();
//!     len
//! }
//! ```
//!
//! Bytes cannot outlive the value that they were read from:
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
//! A function that can call back cannot be called while a key is open:
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

use std::ffi::CStr;

use super::{
    BlockedClient, BlockedClientId, ClientId, Command, Context, MainThread, Replier, Server, Setting, StringRef,
};

/// A module, as the server sees it.
///
/// The layer calls each function on the server's main thread. It catches and logs a panic, and then calls
/// [`panicked`](Self::panicked). Functions with a default are optional.
pub trait Module: Sized + 'static {
    /// The name of the module, which prefixes the names of its settings.
    const NAME: &'static CStr;

    /// The version of the module: decimal numbers, separated by dots.
    const VERSION: &'static str;

    /// The commands of the server that the module calls or replicates. The module is not loaded if `rename-command` has changed
    /// the name of one of them.
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[];

    /// The commands of the server that the module calls in a cluster only. In a cluster they must not be renamed either.
    const NEEDED_IN_CLUSTER: &'static [&'static CStr] = &[];

    /// The descriptions of the commands.
    const COMMANDS: &'static [Command];

    /// The state of the module, which it keeps between two calls.
    type State: 'static;

    /// Returns the cell that holds the state.
    fn state() -> &'static MainThread<Self::State>;

    /// Returns the settings of the module, for `CONFIG SET` and the configuration file. A function, because Rust
    /// 1.85 refuses a constant that refers to atomics.
    fn settings() -> &'static [&'static Setting] {
        &[]
    }

    /// Returns an empty state.
    fn new_state() -> Self::State;

    /// Returns the client that [`Key::block`](super::Key::block) returned for this id, if the module still has it.
    fn blocked_client(state: &mut Self::State, id: BlockedClientId) -> Option<&mut BlockedClient>;

    /// Returns the fields of the module's section in `INFO`. The server prefixes their names with the module's name.
    fn info(_state: &mut Self::State) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Returns the fields of the same section that have a word instead of a number.
    fn info_words(_state: &mut Self::State) -> Vec<(&'static CStr, &'static CStr)> {
        Vec::new()
    }

    /// Called when the module has been loaded, with its commands, settings and timer.
    fn loaded(_ctx: &mut Context<'_, Self>) {}

    /// Called when the server is about to unload the module.
    ///
    /// # Errors
    ///
    /// The reason why the module must not be unloaded.
    fn may_unload(_state: &mut Self::State) -> Result<(), &'static str> {
        Ok(())
    }

    /// Called after a panic was caught in any other function, which may have been called inside another one. The state of the
    /// module may be changed in part. A client whose command panicked gets an error, unless it is blocked.
    fn panicked(_server: &Server) {}

    /// Called when a setting may have another value, also while the module is being loaded.
    fn setting_changed(_server: &Server) {}

    /// Called at the time that was given to [`set_timer`](super::set_timer), or earlier, and after
    /// [`run_timer_soon`](super::run_timer_soon).
    fn timer(_ctx: &mut Context<'_, Self>) {}

    /// Called when the server's cron runs, which it does every `interval_ms` milliseconds.
    fn cron(_server: &Server, _interval_ms: i64) {}

    /// Called when another client, module or the server has changed a key, with the name of the event, such as `expired`.
    ///
    /// Do not write here: the write would reach replicas before the command that caused the event.
    fn key_event(_ctx: &Context<'_, Self>, _event: &[u8], _key: StringRef<'_>) {}

    /// Called when any key may have changed without an event: a database was flushed, two databases were swapped, or all were
    /// reloaded.
    fn keyspace_changed(_server: &Server) {}

    /// Called when the server has become a master or a replica.
    fn role_changed(_server: &Server, _is_master: bool) {}

    /// Called when a connection has closed.
    fn client_closed(_server: &Server, _client: ClientId) {}

    /// Makes the reply to a blocked client that was unblocked.
    ///
    /// The layer calls this once for each client, on some servers inside [`unblock`](super::unblock). So do nothing but reply
    /// here.
    fn answer(reply: &mut Replier<'_>, id: BlockedClientId);

    /// Called when a client is no longer blocked and the server will not ask for a reply, or not again: its connection has
    /// closed, or the server has replied by itself.
    ///
    /// `may_have_reply` is `false` if the server has certainly not sent the reply of [`answer`](Self::answer).
    fn disconnected(_ctx: &Context<'_, Self>, _id: BlockedClientId, _may_have_reply: bool) {}

    /// Called once for each blocked client, when the server frees it. Its [`BlockedClient`] has no effect afterwards.
    ///
    /// `may_have_reply` is as in [`disconnected`](Self::disconnected). On Valkey it is also `false` for a client that got a reply after
    /// CLIENT UNBLOCK.
    fn freed(ctx: &Context<'_, Self>, id: BlockedClientId, may_have_reply: bool);
}
