//! Notifies the module of events.

use super::faults::{self, Fault};
use super::module_hooks::ModuleHooks;
use super::node_state;

/// Notifies the module of an event of a key, if it has subscribed.
pub(super) fn key_event(db: i32, event: &'static str, key: &[u8]) {
    let Some(event) = faults::sent_event(event) else { return };
    if event == "del" && faults::has(Fault::DelEventLate) {
        return node_state::with(|node| node.late_events.push((db, event, key.into())));
    }
    if_subscribed(|hooks| (hooks.key_event)(db, event, key));
}

/// Notifies the module of events that the fault `DelEventLate` has delayed.
pub(super) fn late_key_events() {
    for (db, event, key) in node_state::with(|node| std::mem::take(&mut node.late_events)) {
        if_subscribed(|hooks| (hooks.key_event)(db, event, &key));
    }
}

/// Calls a callback in which the module must not write, if the module has subscribed to events.
pub(super) fn if_subscribed(body: impl FnOnce(ModuleHooks)) {
    if node_state::with(|node| node.listens) {
        always(body);
    }
}

/// Calls a callback in which the module must not write.
pub(super) fn always(body: impl FnOnce(ModuleHooks)) {
    let (hooks, before) = node_state::with(|node| (node.hooks, std::mem::replace(&mut node.running.callback, true)));
    body(hooks);
    node_state::with(|node| node.running.callback = before);
}
