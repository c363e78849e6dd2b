//! Shard channels: messages to clients that have sent SSUBSCRIBE, which works in a cluster and without one.
//!
//! The node that serves the slot of a channel serves the channel. When the slot moves, the server ends the subscriptions and
//! notifies the subscribers. So a client that is subscribed on this node is on the right node, and a channel of another node has
//! no subscribers here.

use super::calls::CallMode;
use super::context::{Context, ContextFlags};
use super::events;
use super::state::state;
use super::string::StringRef;

/// Publishes a message on a shard channel. Returns the number of subscribers on this node that the server gave the message to.
///
/// At 0, no client has got the message, and none will. A higher number is no proof that a client gets it: the number includes
/// subscribers whose connection has closed, until the server notices, and those whose output limit the message exceeds.
///
/// The server sends the message with the replies of this event-loop iteration, and writes it neither to the AOF nor to the
/// replication stream. It can be published in a command that has not begun its reply, unless [`may_publish`] returns `false`,
/// and in the timer, also in a pause and on a replica. In an event, Redis 7.0 may put it into the middle of a reply.
pub fn publish(channel: StringRef<'_>, message: StringRef<'_>) -> usize {
    let Some(ctx) = Context::own() else { return 0 };
    // In a cluster the other nodes of the shard also get the message. Their subscribers must not get a message that no subscriber
    // of this node has got.
    if is_in_cluster() && subscribers(channel) == 0 {
        return 0;
    }
    // SAFETY: the module's own context, and strings that are valid during the call; the server calls nothing back.
    let reached = unsafe { api!(RedisModule_PublishMessageShard(ctx.raw(), channel.raw(), message.raw())) };
    reached as usize
}

/// Returns whether a message that is published now stays out of replies.
///
/// Redis 7.0 puts it into the reply of a transaction, or of a command by which another module calls one of this module, if
/// the client that has sent it is itself a subscriber.
pub fn may_publish() -> bool {
    let is_in_transaction = || Context::own().is_some_and(|ctx| ctx.flags().contains(ContextFlags::TRANSACTION));
    keeps_replies_whole() || !state().is_inner_command.get() && !is_in_transaction()
}

/// Returns whether the server never puts a message into a reply: all servers but Redis 7.0.
fn keeps_replies_whole() -> bool {
    // This function came with the version that fixed it.
    has_api!(RedisModule_AddPostNotificationJob)
}

/// Records whether the command that begins may be a part of another one: if its client must not be blocked, and is not that of
/// a script, whose reply is made when the script has ended.
#[inline(always)]
pub(super) fn command_begins<M>(ctx: &Context<'_, M>) {
    if !keeps_replies_whole() {
        let flags = ctx.flags();
        let is_inner = flags.contains(ContextFlags::DENY_BLOCKING) && !flags.contains(ContextFlags::SCRIPT);
        state().is_inner_command.set(is_inner);
    }
}

/// Returns whether a client has subscribed to a shard channel on this node.
///
/// A client that unsubscribes in the same event-loop iteration may still count, as no client has been notified in the meantime.
/// To ask the server for each of many commands would take a third of its time.
pub fn has_subscriber(channel: StringRef<'_>) -> bool {
    let is_known = |known: &[u8]| !known.is_empty() && known == channel.bytes();
    if is_known(&state().subscribed_channel.borrow()) {
        return true;
    }
    let has_subscriber = subscribers(channel) > 0;
    if has_subscriber && events::subscribe_to_iterations() {
        let mut known = state().subscribed_channel.borrow_mut();
        known.clear();
        known.extend_from_slice(channel.bytes());
    }
    has_subscriber
}

/// Returns the number of clients that have subscribed to a shard channel on this node.
///
/// Calls `PUBSUB`, which [`Module::NEEDED_COMMANDS`](super::Module::NEEDED_COMMANDS) has to list.
pub fn subscribers(channel: StringRef<'_>) -> usize {
    let Some(ctx) = Context::own() else { return 0 };
    let reply = ctx.call(c"PUBSUB", CallMode::Read, &[b"SHARDNUMSUB", channel.bytes()]);
    // The reply is a list of each channel and its number of subscribers.
    reply.ok().and_then(|reply| Some(reply.element(1)?.integer() as usize)).unwrap_or_default()
}

/// Returns whether the server is a node of a cluster.
pub fn is_in_cluster() -> bool {
    state().in_cluster.get()
}
