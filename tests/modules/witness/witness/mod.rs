//! The witness: a module that records what a server does to it, for the scenarios of tests/scenarios/facts.
//!
//! Each call of the server adds a line to the trace, which `WITNESS.TRACE` returns and empties. Each operation of a module is an
//! [act](acts). The command `WITNESS.act words...` runs it and replies with its outcome; `WITNESS.LATER ms act words...` makes
//! the timer run it and adds the outcome to the trace.

mod acts;
mod commands;
mod state;

use std::ffi::CStr;

use redis_lock::server::{
    BlockedClient, BlockedClientId, ClientId, Command, Context, MainThread, Module, Replier, Server, StringRef,
};

use state::{STATE, State, note, report, with};

/// The module.
pub struct Witness;

impl Module for Witness {
    const NAME: &'static CStr = c"witness";
    const VERSION: &'static str = "0.1.0";
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[c"PUBSUB"];
    const COMMANDS: &'static [Command] = commands::COMMANDS;
    type State = State;

    fn state() -> &'static MainThread<State> {
        &STATE
    }

    fn new_state() -> State {
        State::new()
    }

    fn blocked_client(state: &mut State, id: BlockedClientId) -> Option<&mut BlockedClient> {
        state.blocked(id)?.client.as_mut()
    }

    fn timer(ctx: &mut Context<'_, Self>) {
        commands::run_errands(ctx);
    }

    fn cron(server: &Server, interval_ms: i64) {
        with(server, |state| state.cron = Some(interval_ms));
    }

    fn key_event(ctx: &Context<'_, Self>, event: &[u8], key: StringRef<'_>) {
        let [event, key] = [event, key.bytes()].map(String::from_utf8_lossy);
        report(ctx.server(), format!("{event} {} {key}", ctx.db()));
    }

    fn keyspace_changed(server: &Server) {
        report(server, "keyspace changed".to_owned());
    }

    fn role_changed(server: &Server, _is_master: bool) {
        report(server, "role changed".to_owned());
    }

    /// Records a client that has a name.
    fn client_closed(server: &Server, client: ClientId) {
        if let Some(name) = with(server, |state| state.names.get(&client).cloned()) {
            report(server, format!("closed {name}"));
        }
    }

    /// Replies with the number of calls of this function.
    fn answer(reply: &mut Replier<'_>, id: BlockedClientId) {
        note(reply.server(), format!("answer {}", with(reply.server(), |state| state.name_of(id))));
        reply.integer(with(reply.server(), |state| {
            state.answers += 1;
            state.answers
        }));
    }

    fn disconnected(ctx: &Context<'_, Self>, id: BlockedClientId, may_have_reply: bool) {
        note(
            ctx.server(),
            format!("left {} {}", with(ctx.server(), |state| state.name_of(id)), in_words(may_have_reply)),
        );
    }

    fn freed(ctx: &Context<'_, Self>, id: BlockedClientId, may_have_reply: bool) {
        note(
            ctx.server(),
            format!("freed {} {}", with(ctx.server(), |state| state.name_of(id)), in_words(may_have_reply)),
        );
        with(ctx.server(), |state| state.forget(id));
    }
}

/// Returns the word of the trace for whether a client may have its reply.
fn in_words(may_have_reply: bool) -> &'static str {
    if may_have_reply { "told" } else { "untold" }
}
