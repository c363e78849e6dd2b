//! The functions of a [`Module`] that the simulated server calls, without the type of the module.

use super::blocked_client::BlockedClientId;
use super::command::Command;
use super::context::{Context, Replier};
use super::faults::{self, Fault};
use super::handler::CommandHandler;
use super::module::Module;
use super::setting::Setting;
use super::string::{Arguments, StringRef};
use super::{ClientId, node_state};

/// The functions and constants of a module.
#[derive(Clone, Copy)]
pub(super) struct ModuleHooks {
    pub name: &'static [u8],
    pub settings: &'static [&'static Setting],
    pub commands: &'static [Command],
    pub loaded: fn(),
    pub setting_changed: fn(),
    pub run: fn(CommandHandler, ClientId, i32, &[Vec<u8>]),
    pub timer: fn(),
    pub cron: fn(i64),
    pub key_event: fn(i32, &str, &[u8]),
    pub keyspace_changed: fn(),
    pub role_changed: fn(bool),
    pub client_closed: fn(ClientId),
    /// Makes the reply to a blocked client, unless the module has made it before.
    pub answer: fn(BlockedClientId),
    /// Called when a blocked client has disconnected.
    pub disconnected: fn(BlockedClientId),
    /// Called when a blocked client is freed. The flag is true if the client has certainly not got the reply that the module
    /// made.
    pub freed: fn(BlockedClientId, bool),
    pub forget: fn(),
    pub info: fn() -> Vec<(String, u64)>,
}

impl ModuleHooks {
    pub fn of<M: Module>() -> Self {
        Self {
            name: M::NAME.to_bytes(),
            settings: M::SETTINGS,
            commands: M::COMMANDS,
            loaded: || M::loaded(&mut Context::new(0, 0)),
            setting_changed: M::setting_changed,
            run: |handler, client, db, words| handler.run::<M>(Context::new(client, db), Arguments(words)),
            timer: || M::timer(&mut Context::new(0, 0)),
            cron: M::cron,
            key_event: |db, event, key| M::key_event(&Context::new(0, db), event.as_bytes(), StringRef(key)),
            keyspace_changed: M::keyspace_changed,
            role_changed: M::role_changed,
            client_closed: M::client_closed,
            answer: |id| {
                if !answered::<M>(id, true) {
                    M::answer(&mut Replier::new(), id);
                }
            },
            disconnected: |id| {
                let replied = answered::<M>(id, false) || faults::has(Fault::LeftSaysReplied);
                M::disconnected(&Context::new(0, 0), id, replied);
            },
            freed: |id, kept_back| {
                let replied = answered::<M>(id, false) && !kept_back || faults::has(Fault::FreedSaysReplied);
                M::freed(&Context::new(0, 0), id, replied);
            },
            forget: || M::state().replace(M::new_state()),
            info: || M::state().with(|state| M::info(state)),
        }
    }
}

/// Returns whether the reply to a blocked client was made before. Marks it as made if `now` is true.
fn answered<M: Module>(id: BlockedClientId, now: bool) -> bool {
    M::state().with(|state| {
        M::blocked_client(state, id).is_some_and(|client| {
            let before = client.answered;
            client.answered |= now;
            before
        })
    })
}

/// Notifies the module of an event of a key, if it has subscribed.
pub(super) fn tell_event(db: i32, event: &'static str, key: &[u8]) {
    let Some(event) = faults::sent_event(event) else { return };
    if event == "del" && faults::has(Fault::DelEventLate) {
        return node_state::with(|node| node.late_events.push((db, event, key.into())));
    }
    notify(|hooks| (hooks.key_event)(db, event, key));
}

/// Notifies the module of events that the fault `DelEventLate` has delayed.
pub(super) fn tell_late_events() {
    for (db, event, key) in node_state::with(|node| std::mem::take(&mut node.late_events)) {
        notify(|hooks| (hooks.key_event)(db, event, &key));
    }
}

/// Calls a callback in which the module must not write, if the module has subscribed to events.
pub(super) fn notify(body: impl FnOnce(ModuleHooks)) {
    if node_state::with(|node| node.listens) {
        notify_always(body);
    }
}

/// Calls a callback in which the module must not write.
pub(super) fn notify_always(body: impl FnOnce(ModuleHooks)) {
    let (hooks, before) = node_state::with(|node| (node.hooks, std::mem::replace(&mut node.running.callback, true)));
    body(hooks);
    node_state::with(|node| node.running.callback = before);
}
