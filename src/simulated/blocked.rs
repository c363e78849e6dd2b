//! Clients that the module has blocked, and the replies to them.

use super::ClientId;
use super::blocked_client::{Blocked, BlockedClientId};
use super::client::Sent;
use super::crash::crash;
use super::event_log::LoggedEvent;
use super::faults::{self, Fault};
use super::kind::Answering;
use super::main_thread::Server;
use super::module::Module;
use super::node_state::{self, NodeState};
use super::notify;
use super::reply::Reply;

pub(super) fn add(id: BlockedClientId, blocked: Blocked) {
    node_state::with(|node| {
        if let Some(client) = node.clients.get_mut(&blocked.client) {
            client.blocked = Some(id);
        }
        node.blocked.insert(id, blocked);
    });
}

/// Unblocks a client. The server asks [`Module::answer`] for the reply, on some kinds of server inside this call. Has no effect
/// if the client was unblocked or freed before.
pub fn unblock<M: Module>(_server: &mut Server, id: BlockedClientId) {
    if faults::has(Fault::UnblockIgnored) {
        return;
    }
    let Some(answering) = node_state::with(|node| {
        let blocked = node.blocked.get_mut(&id).filter(|blocked| !blocked.is_unblocked && !blocked.has_ended)?;
        blocked.is_unblocked = true;
        let tag = blocked.tag;
        node.unblocked.push(id);
        node.note(LoggedEvent::ModuleUnblocked { tag });
        Some(node.kind.answering())
    }) else {
        return;
    };
    match answering {
        Answering::Inside => answer(id),
        Answering::AtEndOfRound => {}
        Answering::FakeClient => {
            let reply = ask(id);
            node_state::with(|node| node.blocked.get_mut(&id).map(|blocked| blocked.kept = reply));
        }
    }
}

/// Asks the module for the reply. Returns `None` if the module has made the reply before.
fn ask(id: BlockedClientId) -> Option<Reply> {
    let before = node_state::with(|node| std::mem::take(&mut node.pieces));
    let hooks = node_state::hooks();
    (hooks.answer)(id);
    let pieces = node_state::with(|node| std::mem::replace(&mut node.pieces, before));
    let mut replies = Reply::all_of(pieces);
    match (replies.pop(), replies.is_empty()) {
        (reply, true) => reply,
        _ => crash("a blocked client is answered twice"),
    }
}

/// Asks the module for the reply, and puts it into the client's output buffer.
fn answer(id: BlockedClientId) {
    let reply = ask(id);
    node_state::with(|node| give(node, id, reply));
}

fn give(node: &mut NodeState, id: BlockedClientId, reply: Option<Reply>) {
    if let (Some(blocked), Some(reply)) = (node.blocked.get(&id), reply) {
        let (client, tag) = (blocked.client, blocked.tag);
        if faults::has(Fault::ReplySentTwice) {
            node.reply(client, tag, reply.clone());
        }
        if !faults::has(Fault::ReplyLost) {
            node.reply(client, tag, reply);
        }
    }
}

/// Marks a client as unblocked by the server. Returns whether it was not marked before.
pub(super) fn dismiss(id: BlockedClientId) -> bool {
    node_state::with(|node| {
        node.blocked.get_mut(&id).is_some_and(|blocked| !std::mem::replace(&mut blocked.is_dismissed, true))
    })
}

/// Returns another blocked client, or `id` if there is no other.
pub(super) fn other_than(id: BlockedClientId) -> BlockedClientId {
    node_state::with(|node| node.blocked.keys().find(|&&other| other != id).copied().unwrap_or(id))
}

/// Unblocks a client as CLIENT UNBLOCK TIMEOUT does. The module makes the reply inside this call.
pub(super) fn time_out(id: BlockedClientId) {
    let is_new = node_state::with(|node| {
        let answering = node.kind.answering();
        let blocked = node.blocked.get_mut(&id)?;
        let is_new = !std::mem::replace(&mut blocked.is_unblocked, true);
        if is_new {
            node.unblocked.push(id);
        }
        Some(is_new || answering == Answering::AtEndOfRound)
    });
    if is_new == Some(true) {
        answer(id);
        // Valkey then treats the client as disconnected, although it has a reply.
        node_state::with(|node| {
            let is_closed = node.kind.answering() == Answering::FakeClient;
            node.blocked.get_mut(&id).map(|blocked| blocked.has_ended |= is_closed)
        });
    }
}

/// Replies to a blocked client with an error of the server: after CLIENT UNBLOCK ERROR, or when a slot or the role has changed.
pub(super) fn refuse(id: BlockedClientId, error: &str) {
    node_state::with(|node| give(node, id, Some(Reply::error(error))));
    end_wait(id);
}

/// Ends the wait of a blocked client that has disconnected, or that has a reply of the server. The client is freed at the end of
/// the event-loop iteration.
pub(super) fn end_wait(id: BlockedClientId) {
    let is_notified = node_state::with(|node| {
        let answering = node.kind.answering();
        let blocked = node.blocked.get_mut(&id).filter(|blocked| !blocked.has_ended)?;
        blocked.has_ended = true;
        let was_unblocked = blocked.is_unblocked;
        if !was_unblocked {
            node.unblocked.push(id);
        }
        // If the client was unblocked before, only servers that reply at the end of the iteration notify the module.
        Some(!was_unblocked || answering == Answering::AtEndOfRound)
    });
    if is_notified == Some(true) && !faults::has(Fault::LeftNotCalled) {
        let hooks = node_state::hooks();
        (hooks.disconnected)(id);
    }
}

/// Replies to all unblocked clients and frees them. Their further input is run afterwards.
pub(super) fn free_all() {
    for id in node_state::with(|node| std::mem::take(&mut node.unblocked)) {
        free(id);
    }
}

fn free(id: BlockedClientId) {
    let (answering, has_ended) =
        node_state::with(|node| (node.kind.answering(), node.blocked.get(&id).is_none_or(|blocked| blocked.has_ended)));
    if answering == Answering::AtEndOfRound && !has_ended {
        answer(id);
    }
    let hooks = node_state::hooks();
    if !faults::has(Fault::FreedNotCalled) {
        let is_lost =
            has_ended && (answering == Answering::FakeClient || faults::has(Fault::DisconnectedSaysNotReplied));
        (hooks.freed)(id, is_lost);
    }
    node_state::with(|node| {
        let kept = node.blocked.get_mut(&id).and_then(|blocked| blocked.kept.take());
        give(node, id, kept.filter(|_| !has_ended));
        let Some(blocked) = node.blocked.remove(&id) else { return };
        node.note(LoggedEvent::Freed { tag: blocked.tag });
        if let Some(client) = node.clients.get_mut(&blocked.client).filter(|client| client.blocked == Some(id)) {
            client.blocked = None;
            node.resumed.push_back(blocked.client);
        }
    });
}

/// Closes the connection of a client.
pub(super) fn close(client: ClientId) {
    let Some(entry) = node_state::with(|node| node.clients.remove(&client)) else { return };
    node_state::with(|node| node.note(LoggedEvent::Closed { client }));
    if !faults::has(Fault::CloseNotAnnounced) {
        notify::if_subscribed(|hooks| (hooks.client_closed)(client));
    }
    if let Some(id) = entry.blocked {
        end_wait(id);
    }
}

/// Puts a command that cannot run now back at the front of the client's input.
pub(super) fn put_back(client: ClientId, sent: Sent) {
    node_state::with(|node| node.clients.get_mut(&client).map(|entry| entry.input.push_front(sent)));
}
