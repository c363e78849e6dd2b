//! Clients that the module has blocked, and when they are answered.

use super::blocked_client::BlockedClientId;
use super::client::Sent;
use super::doors;
use super::journal::{Note, Tag};
use super::kind::Answering;
use super::module::Module;
use super::reply::Reply;
use super::world::{self, World};
use super::{ClientId, crash};

/// A client that is blocked, until it is freed.
pub(super) struct Blocked {
    pub client: ClientId,
    pub tag: Tag,
    /// The key that it is blocked on.
    pub key: (i32, Vec<u8>),
    /// The module has let it go.
    let_go: bool,
    /// The server has let it go by itself, after which it does so no more.
    is_dismissed: bool,
    /// The client is gone, or the server has answered it by itself.
    has_left: bool,
    /// What the stand-in was told.
    kept: Option<Reply>,
}

impl Blocked {
    pub fn new(client: ClientId, tag: Tag, key: (i32, Vec<u8>)) -> Self {
        Self { client, tag, key, let_go: false, is_dismissed: false, has_left: false, kept: None }
    }
}

pub(super) fn add(id: BlockedClientId, blocked: Blocked) {
    world::with(|world| {
        if let Some(client) = world.clients.get_mut(&blocked.client) {
            client.blocked = Some(id);
        }
        world.blocked.insert(id, blocked);
    });
}

/// Lets a blocked client go on: the server asks [`Module::answer`] for the reply, perhaps inside this call. Nothing happens
/// if it was unblocked or freed before.
pub fn unblock<M: Module>(id: BlockedClientId) {
    let Some(answering) = world::with(|world| {
        let blocked = world.blocked.get_mut(&id).filter(|blocked| !blocked.let_go && !blocked.has_left)?;
        blocked.let_go = true;
        let tag = blocked.tag;
        world.let_go.push(id);
        world.note(Note::LetGo { tag });
        Some(world.kind.answering())
    }) else {
        return;
    };
    match answering {
        Answering::Inside => answer(id),
        Answering::AtEndOfRound => {}
        Answering::StandIn => {
            let reply = ask(id);
            world::with(|world| world.blocked.get_mut(&id).map(|blocked| blocked.kept = reply));
        }
    }
}

/// Asks the module for the reply. `None` if it was asked before.
fn ask(id: BlockedClientId) -> Option<Reply> {
    let before = world::with(|world| std::mem::take(&mut world.pieces));
    let doors = world::doors();
    (doors.answer)(id);
    let pieces = world::with(|world| std::mem::replace(&mut world.pieces, before));
    let mut replies = Reply::all_of(pieces);
    match (replies.pop(), replies.is_empty()) {
        (reply, true) => reply,
        _ => crash::crash("a blocked client is answered twice"),
    }
}

/// Asks the module for the reply and gives it to the client.
fn answer(id: BlockedClientId) {
    let reply = ask(id);
    world::with(|world| give(world, id, reply));
}

fn give(world: &mut World, id: BlockedClientId, reply: Option<Reply>) {
    if let (Some(blocked), Some(reply)) = (world.blocked.get(&id), reply) {
        let (client, tag) = (blocked.client, blocked.tag);
        world.reply(client, tag, reply);
    }
}

/// Whether the server lets a client go by itself for the first time.
pub(super) fn dismiss(id: BlockedClientId) -> bool {
    world::with(|world| {
        world.blocked.get_mut(&id).is_some_and(|blocked| !std::mem::replace(&mut blocked.is_dismissed, true))
    })
}

/// CLIENT UNBLOCK TIMEOUT: the module answers now.
pub(super) fn time_out(id: BlockedClientId) {
    let is_new = world::with(|world| {
        let answering = world.kind.answering();
        let blocked = world.blocked.get_mut(&id)?;
        let is_new = !std::mem::replace(&mut blocked.let_go, true);
        if is_new {
            world.let_go.push(id);
        }
        Some(is_new || answering == Answering::AtEndOfRound)
    });
    if is_new == Some(true) {
        answer(id);
        // Valkey takes the client for gone then, although it was answered.
        world::with(|world| {
            let is_gone = world.kind.answering() == Answering::StandIn;
            world.blocked.get_mut(&id).map(|blocked| blocked.has_left |= is_gone)
        });
    }
}

/// The server answers a blocked client by itself: CLIENT UNBLOCK ERROR, a slot or a role that changed.
pub(super) fn refuse(id: BlockedClientId, error: &str) {
    world::with(|world| give(world, id, Some(Reply::error(error))));
    leave(id);
}

/// A blocked client is gone, or was answered by the server: it is freed at the end of the round.
pub(super) fn leave(id: BlockedClientId) {
    let is_told = world::with(|world| {
        let answering = world.kind.answering();
        let blocked = world.blocked.get_mut(&id).filter(|blocked| !blocked.has_left)?;
        blocked.has_left = true;
        let was_let_go = blocked.let_go;
        if !was_let_go {
            world.let_go.push(id);
        }
        // Of one that was let go only those hear that ask at the end of the round.
        Some(!was_let_go || answering == Answering::AtEndOfRound)
    });
    if is_told == Some(true) {
        let doors = world::doors();
        (doors.left)(id);
    }
}

/// Answers and frees all that were let go, and has them go on with what they sent.
pub(super) fn free_all() {
    for id in world::with(|world| std::mem::take(&mut world.let_go)) {
        free(id);
    }
}

fn free(id: BlockedClientId) {
    let (answering, has_left) =
        world::with(|world| (world.kind.answering(), world.blocked.get(&id).is_none_or(|blocked| blocked.has_left)));
    if answering == Answering::AtEndOfRound && !has_left {
        answer(id);
    }
    let doors = world::doors();
    (doors.freed)(id, has_left && answering == Answering::StandIn);
    world::with(|world| {
        let kept = world.blocked.get_mut(&id).and_then(|blocked| blocked.kept.take());
        give(world, id, kept.filter(|_| !has_left));
        let Some(blocked) = world.blocked.remove(&id) else { return };
        world.note(Note::Freed { tag: blocked.tag });
        if let Some(client) = world.clients.get_mut(&blocked.client).filter(|client| client.blocked == Some(id)) {
            client.blocked = None;
            world.resumed.push_back(blocked.client);
        }
    });
}

/// The connection of a client closes.
pub(super) fn close(client: ClientId) {
    let Some(entry) = world::with(|world| world.clients.remove(&client)) else { return };
    world::with(|world| world.note(Note::Closed { client }));
    doors::tell(|doors| (doors.client_closed)(client));
    if let Some(id) = entry.blocked {
        leave(id);
    }
}

/// Puts a command back that cannot run now.
pub(super) fn put_back(client: ClientId, sent: Sent) {
    world::with(|world| world.clients.get_mut(&client).map(|entry| entry.input.push_front(sent)));
}
