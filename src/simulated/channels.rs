//! Shard channels, and the messages to their subscribers.

use super::ClientId;
use super::client::{Output, Sent};
use super::cluster::slot_of;
use super::crash::crash;
use super::event_log::LoggedEvent;
use super::faults::{self, Fault};
use super::kind::ServerKind;
use super::node_state::{self, NodeState};
use super::refusal::refusal;
use super::reply::Reply;
use super::string::StringRef;

/// Publishes a message on a shard channel. Returns the number of subscribers. A subscriber that has disconnected counts until the
/// server notices that.
pub fn publish(channel: StringRef<'_>, message: StringRef<'_>) -> usize {
    let (channel, message) = (channel.bytes(), message.bytes());
    node_state::with(|node| {
        let reached = subscribers_of(node, channel).len();
        node.note(LoggedEvent::Published { channel: channel.into(), message: message.into(), reached });
        let count = give_to_subscribers(node, channel, message);
        match count {
            _ if faults::has(Fault::PublishCountsNone) => 0,
            _ if faults::has(Fault::PublishCountsOneMore) => count.saturating_add(1),
            _ => count,
        }
    })
}

/// Returns whether a message that is published now stays outside of replies.
pub fn may_publish() -> bool {
    node_state::with(|node| node.kind != ServerKind::Redis70 || !node.running.transaction)
}

/// Returns whether a client has subscribed to a channel.
pub fn has_subscriber(channel: StringRef<'_>) -> bool {
    subscribers(channel) > 0 || faults::has(Fault::SubscriberInvented)
}

/// Returns how many clients have subscribed to a channel.
pub fn subscribers(channel: StringRef<'_>) -> usize {
    node_state::with(|node| subscribers_of(node, channel.bytes()).len())
}

/// Runs a command on channels. Returns `None` for any other command.
pub(super) fn run(client: ClientId, sent: &Sent) -> Option<Reply> {
    let words = &sent.words;
    let word = |number: usize| words.get(number).map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    let channel = words.get(1).map_or(&[][..], Vec::as_slice);
    Some(match (word(0).as_slice(), word(1).as_slice()) {
        (b"PUBSUB", b"SHARDNUMSUB") => count(words.get(2)?),
        (b"SSUBSCRIBE", _) => refusal(words).unwrap_or_else(|| subscribe(client, channel)),
        (b"SUNSUBSCRIBE", _) => refusal(words).unwrap_or_else(|| unsubscribe(client, channel)),
        (b"SPUBLISH", _) => refusal(words).unwrap_or_else(|| {
            let message = words.get(2).map_or(&[][..], Vec::as_slice);
            number(node_state::with(|node| give_to_subscribers(node, channel, message)))
        }),
        _ => return None,
    })
}

/// Returns whether a client may send this command. A RESP2 client with a subscription must unsubscribe first.
pub(super) fn is_allowed(client: ClientId, name: &[u8]) -> bool {
    const ALLOWED: [&[u8]; 4] = [b"SSUBSCRIBE", b"SUNSUBSCRIBE", b"PING", b"QUIT"];
    let listens = node_state::with(|node| node.clients.get(&client).is_some_and(|client| client.listens_only()));
    !listens || ALLOWED.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// Unsubscribes all clients from the channels of a slot that moves to another node, and sends each of them a message.
pub(super) fn drop_slot(node: &mut NodeState, slot: u8) {
    let left: Vec<(ClientId, Vec<u8>)> = node
        .clients
        .iter()
        .flat_map(|(&client, entry)| entry.channels.iter().map(move |channel| (client, channel.clone())))
        .filter(|(_, channel)| slot_of(channel) == slot)
        .collect();
    for (client, channel) in left {
        if let Some(message) = drop_channel(node, client, &channel) {
            push(node, client, message);
        }
    }
}

/// Puts the deferred messages of a client into its output buffer, after the client's command has ended.
pub(super) fn push_deferred(node: &mut NodeState, client: ClientId) {
    for message in std::mem::take(&mut node.running.deferred) {
        push(node, client, message);
    }
}

fn subscribe(client: ClientId, channel: &[u8]) -> Reply {
    node_state::with(|node| {
        if node.running.transaction {
            return Reply::error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
        }
        let Some(entry) = node.clients.get_mut(&client) else { return Reply::Nil };
        entry.channels.insert(channel.to_vec());
        let left = entry.channels.len();
        entry.message([Reply::bytes(b"ssubscribe"), Reply::bytes(channel), number(left)])
    })
}

fn unsubscribe(client: ClientId, channel: &[u8]) -> Reply {
    node_state::with(|node| drop_channel(node, client, channel)).unwrap_or(Reply::Nil)
}

/// Unsubscribes a client from a channel. Returns the message to the client.
fn drop_channel(node: &mut NodeState, client: ClientId, channel: &[u8]) -> Option<Reply> {
    let entry = node.clients.get_mut(&client)?;
    entry.channels.remove(channel);
    let left = entry.channels.len();
    Some(entry.message([Reply::bytes(b"sunsubscribe"), Reply::bytes(channel), number(left)]))
}

/// Returns the reply to PUBSUB SHARDNUMSUB.
fn count(channel: &[u8]) -> Reply {
    let count = node_state::with(|node| subscribers_of(node, channel).len());
    Reply::Array(vec![Reply::bytes(channel), number(count)])
}

fn subscribers_of(node: &NodeState, channel: &[u8]) -> Vec<ClientId> {
    let subscribed = node.clients.iter().filter(|(_, entry)| entry.channels.contains(channel));
    subscribed.map(|(&client, _)| client).collect()
}

/// Sends a message to the subscribers of a channel. Returns the number of subscribers.
fn give_to_subscribers(node: &mut NodeState, channel: &[u8], message: &[u8]) -> usize {
    let subscribers = subscribers_of(node, channel);
    for &client in &subscribers {
        let Some(entry) = node.clients.get(&client) else { continue };
        let message = entry.message([Reply::bytes(b"smessage"), Reply::bytes(channel), Reply::bytes(message)]);
        if node.running.client != Some(client) {
            push(node, client, message);
        } else if node.kind != ServerKind::Redis70 {
            node.running.deferred.push(message);
        } else if node.running.transaction || node.running.callback || Reply::is_begun(&node.pieces) {
            crash("a message in the middle of a reply, or perhaps");
        } else {
            push(node, client, message);
        }
    }
    subscribers.len()
}

/// Puts a message into the output buffer of a client, unless the server is closing the connection.
fn push(node: &mut NodeState, client: ClientId, message: Reply) {
    if let Some(entry) = node.clients.get_mut(&client).filter(|entry| !entry.closing) {
        entry.output.push(Output::Message);
        node.note(LoggedEvent::Pushed { client, message });
    }
}

fn number(count: usize) -> Reply {
    Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}
