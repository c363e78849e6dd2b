//! A module that tells what a server does to it, for the scenarios of tests/facts.
//!
//! Whatever the server calls becomes a line of the trace, which `WITNESS.TRACE` empties. Whatever a module can do is an
//! [act](acts): a command does it at once and replies with its outcome, `WITNESS.LATER ms act words...` has the timer do it
//! and puts the outcome into the trace.

mod acts;
mod commands;
mod state;

use std::ffi::CStr;

use redis_lock::server::{
    BlockedClient, BlockedClientId, ClientId, Command, Context, EventName, MainThread, Module, Replier, StringRef,
};

use state::{STATE, State, note, report, with};

pub struct Witness;

impl Module for Witness {
    const NAME: &'static CStr = c"witness";
    const VERSION: &'static str = "0.1.0";
    const NEEDED_COMMANDS: &'static [&'static CStr] = &[c"PUBSUB"];
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

    fn commands() -> Vec<Command> {
        commands::commands()
    }

    fn timer(ctx: &mut Context<'_, Self>) {
        commands::run_errands(ctx);
    }

    fn cron(interval_ms: i64) {
        with(|state| state.cron = Some(interval_ms));
    }

    fn key_event(ctx: &Context<'_, Self>, event: EventName<'_>, key: StringRef<'_>) {
        let [event, key] = [event.bytes(), key.bytes()].map(String::from_utf8_lossy);
        report(format!("{event} {} {key}", ctx.db()));
    }

    fn keyspace_changed() {
        report("keyspace changed".to_owned());
    }

    fn role_changed(_is_master: bool) {
        report("role changed".to_owned());
    }

    /// Of those who have given no name nothing is said.
    fn client_closed(client: ClientId) {
        if let Some(name) = with(|state| state.names.get(&client).cloned()) {
            report(format!("closed {name}"));
        }
    }

    /// Replies how many answers have been asked for.
    fn answer(reply: &mut Replier<'_>, id: BlockedClientId) {
        note(format!("answer {}", with(|state| state.name_of(id))));
        reply.integer(with(|state| {
            state.answers += 1;
            state.answers
        }));
    }

    fn disconnected(_: &Context<'_, Self>, id: BlockedClientId, replied: bool) {
        note(format!("left {} {}", with(|state| state.name_of(id)), in_words(replied)));
    }

    fn freed(_: &Context<'_, Self>, id: BlockedClientId, replied: bool) {
        note(format!("freed {} {}", with(|state| state.name_of(id)), in_words(replied)));
        with(|state| state.forget(id));
    }
}

fn in_words(replied: bool) -> &'static str {
    if replied { "told" } else { "untold" }
}
