//! Shard channels, and what subscribers are told.

use super::ClientId;
use super::client::{Output, Sent};
use super::cluster::slot_of;
use super::crash::crash;
use super::journal::Note;
use super::kind::ServerKind;
use super::process;
use super::reply::Reply;
use super::string::StringRef;
use super::world::{self, World};

/// Publishes a message on a shard channel. Returns how many subscribers it was given to: also those that have closed, until
/// the server notices.
pub fn publish(channel: StringRef<'_>, message: StringRef<'_>) -> usize {
    let (channel, message) = (channel.bytes(), message.bytes());
    world::with(|world| {
        let reached = subscribers_of(world, channel).len();
        world.note(Note::Published { channel: channel.into(), message: message.into(), reached });
        give_to_subscribers(world, channel, message)
    })
}

/// Whether a message that is published now stays out of replies.
pub fn may_publish() -> bool {
    world::with(|world| world.kind != ServerKind::Redis70 || !world.running.transaction)
}

/// Returns whether a client has subscribed to a channel.
pub fn has_subscriber(channel: StringRef<'_>) -> bool {
    subscribers(channel) > 0
}

/// Returns how many clients have subscribed to a channel.
pub fn subscribers(channel: StringRef<'_>) -> usize {
    world::with(|world| subscribers_of(world, channel.bytes()).len())
}

/// Runs a command about channels. `None`: it is none of those.
pub(super) fn run(client: ClientId, sent: &Sent) -> Option<Reply> {
    let words = &sent.words;
    let word = |number: usize| words.get(number).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    let channel = words.get(1).map_or(&[][..], Vec::as_slice);
    Some(match (word(0).as_slice(), word(1).as_slice()) {
        (b"PUBSUB", b"SHARDNUMSUB") => count(words.get(2)?),
        (b"SSUBSCRIBE", _) => process::refusal(words).unwrap_or_else(|| subscribe(client, channel)),
        (b"SUNSUBSCRIBE", _) => process::refusal(words).unwrap_or_else(|| unsubscribe(client, channel)),
        (b"SPUBLISH", _) => process::refusal(words).unwrap_or_else(|| {
            let message = words.get(2).map_or(&[][..], Vec::as_slice);
            number(world::with(|world| give_to_subscribers(world, channel, message)))
        }),
        _ => return None,
    })
}

/// Whether a command names a channel where others name a key.
pub(super) fn names_channel(name: &[u8]) -> bool {
    [b"SSUBSCRIBE".as_slice(), b"SUNSUBSCRIBE", b"SPUBLISH"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a client may send this: a subscriber with RESP2 has to leave its channels first.
pub(super) fn is_allowed(client: ClientId, name: &[u8]) -> bool {
    const ALLOWED: [&[u8]; 4] = [b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"PING", b"QUIT"];
    let listens = world::with(|world| world.clients.get(&client).is_some_and(|client| client.listens_only()));
    !listens || ALLOWED.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// Subscribers to the channels of a slot that leaves are told.
pub(super) fn leave(world: &mut World, slot: u8) {
    let left: Vec<(ClientId, Vec<u8>)> = world
        .clients
        .iter()
        .flat_map(|(&client, entry)| entry.channels.iter().map(move |channel| (client, channel.clone())))
        .filter(|(_, channel)| slot_of(channel) == slot)
        .collect();
    for (client, channel) in left {
        if let Some(message) = drop_channel(world, client, &channel) {
            push(world, client, message);
        }
    }
}

/// Puts what was kept back for the client whose command has ended into its buffer.
pub(super) fn push_deferred(world: &mut World, client: ClientId) {
    for message in std::mem::take(&mut world.running.deferred) {
        push(world, client, message);
    }
}

fn subscribe(client: ClientId, channel: &[u8]) -> Reply {
    world::with(|world| {
        if world.running.transaction {
            return Reply::error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
        }
        let Some(entry) = world.clients.get_mut(&client) else { return Reply::Nil };
        entry.channels.insert(channel.to_vec());
        let left = entry.channels.len();
        entry.message([Reply::bytes(b"ssubscribe"), Reply::bytes(channel), number(left)])
    })
}

fn unsubscribe(client: ClientId, channel: &[u8]) -> Reply {
    world::with(|world| drop_channel(world, client, channel)).unwrap_or(Reply::Nil)
}

/// A client has subscribed to this channel no more. Returns what it is told.
fn drop_channel(world: &mut World, client: ClientId, channel: &[u8]) -> Option<Reply> {
    let entry = world.clients.get_mut(&client)?;
    entry.channels.remove(channel);
    let left = entry.channels.len();
    Some(entry.message([Reply::bytes(b"sunsubscribe"), Reply::bytes(channel), number(left)]))
}

/// The reply to PUBSUB SHARDNUMSUB.
fn count(channel: &[u8]) -> Reply {
    let count = world::with(|world| subscribers_of(world, channel).len());
    Reply::Array(vec![Reply::bytes(channel), number(count)])
}

fn subscribers_of(world: &World, channel: &[u8]) -> Vec<ClientId> {
    let subscribed = world.clients.iter().filter(|(_, entry)| entry.channels.contains(channel));
    subscribed.map(|(&client, _)| client).collect()
}

/// Returns how many there are.
fn give_to_subscribers(world: &mut World, channel: &[u8], message: &[u8]) -> usize {
    let subscribers = subscribers_of(world, channel);
    for &client in &subscribers {
        let Some(entry) = world.clients.get(&client) else { continue };
        let message = entry.message([Reply::bytes(b"smessage"), Reply::bytes(channel), Reply::bytes(message)]);
        if world.running.client != Some(client) {
            push(world, client, message);
        } else if world.kind != ServerKind::Redis70 {
            world.running.deferred.push(message);
        } else if world.running.transaction || world.running.callback || Reply::is_begun(&world.pieces) {
            crash("a message in the middle of a reply, or perhaps");
        } else {
            push(world, client, message);
        }
    }
    subscribers.len()
}

/// Puts a message into the buffer of a client, unless the client is closing.
fn push(world: &mut World, client: ClientId, message: Reply) {
    if let Some(entry) = world.clients.get_mut(&client).filter(|entry| !entry.closing) {
        entry.output.push(Output::Message);
        world.note(Note::Pushed { client, message });
    }
}

fn number(count: usize) -> Reply {
    Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}
