//! Makes the [`ModuleHooks`] of a [`Module`].

use super::blocked_client::BlockedClientId;
use super::context::{Context, Replier};
use super::faults::{self, Fault};
use super::handler;
use super::main_thread::Server;
use super::module::Module;
use super::module_hooks::ModuleHooks;
use super::string::{Arguments, StringRef};

/// Returns the functions and constants of the module `M`.
pub(super) fn hooks_of<M: Module>() -> ModuleHooks {
    ModuleHooks {
        name: M::NAME.to_bytes(),
        settings: M::settings(),
        commands: M::COMMANDS,
        loaded: || M::loaded(&mut Context::new(0, 0)),
        setting_changed: || M::setting_changed(&Server::new()),
        run: |handler, client, db, words| handler::run::<M>(handler, Context::new(client, db), Arguments(words)),
        timer: || M::timer(&mut Context::new(0, 0)),
        cron: |interval_ms| M::cron(&Server::new(), interval_ms),
        key_event: |db, event, key| M::key_event(&Context::new(0, db), event.as_bytes(), StringRef(key)),
        keyspace_changed: || M::keyspace_changed(&Server::new()),
        role_changed: |is_master| M::role_changed(&Server::new(), is_master),
        client_closed: |client| M::client_closed(&Server::new(), client),
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
        info: || M::state().with(&Server::new(), |state| M::info(state)),
        info_words: || M::state().with(&Server::new(), |state| M::info_words(state)),
    }
}

/// Returns whether the reply to a blocked client was made before. Marks it as made if `now` is true.
fn answered<M: Module>(id: BlockedClientId, now: bool) -> bool {
    M::state().with(&Server::new(), |state| {
        M::blocked_client(state, id).is_some_and(|client| {
            let before = client.answered;
            client.answered |= now;
            before
        })
    })
}
