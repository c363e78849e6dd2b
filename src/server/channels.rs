//! Shard channels: messages to clients that have sent SSUBSCRIBE, which works in a cluster and without one.
//!
//! A channel is served by the node that has its slot, and subscribers are told when the slot leaves. So whoever
//! subscribes to a channel on this node is at the right one, and a channel of another node has no subscribers here.

use std::ffi::c_longlong;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::context::{Context, ContextFlags};
use super::events;
use super::string::StringRef;
use super::subscriber_cache;
use super::timer;

/// Whether a command of the module runs inside another command.
static IS_CALLED: AtomicBool = AtomicBool::new(false);

/// Whether the server is a node of a cluster.
static IN_CLUSTER: AtomicBool = AtomicBool::new(false);

/// Publishes a message on a shard channel. Returns the number of subscribers on this node that it was given to.
///
/// At 0 nobody was told, and nobody will be. A higher number is no proof that somebody is: it counts subscribers whose
/// connection has closed, until the server notices, and those whose output limit the message exceeds.
///
/// The message leaves the server with the replies of this round of the loop, and is written neither to the AOF nor to
/// the replication stream. It can be published in a command that has not begun its reply, unless [`may_publish`] says
/// no, and in the timer, also in a pause and on a replica. In an event, Redis 7.0 may put it into the middle of a reply.
pub fn publish(channel: StringRef<'_>, message: StringRef<'_>) -> usize {
    let Some(ctx) = timer::own_context() else { return 0 };
    // In a cluster the other nodes of the shard also get the message, whose subscribers must not be told what nobody
    // here was.
    if is_in_cluster() && subscribers(channel) == 0 {
        return 0;
    }
    // SAFETY: the module's own context, and strings that are valid during the call; the server calls nothing back.
    let reached = unsafe { api!(RedisModule_PublishMessageShard(ctx, channel.raw(), message.raw())) };
    usize::try_from(reached).unwrap_or(0)
}

/// Returns whether a message that is published now stays out of replies.
///
/// Redis 7.0 puts it into the reply of a transaction, or of a command by which another module calls one of this module, if
/// the client that has sent it is itself a subscriber.
pub fn may_publish() -> bool {
    is_always_whole() || !IS_CALLED.load(Ordering::Relaxed) && !timer::own_context().is_some_and(is_in_transaction)
}

/// Returns whether the server never puts a message into a reply: all but Redis 7.0.
fn is_always_whole() -> bool {
    // This function came with the same version as the remedy.
    has_api!(RedisModule_AddPostNotificationJob)
}

/// Records whether the command that begins may be a part of another one: its client must not be blocked, and is not that of
/// a script, whose reply is made when it has ended.
#[inline(always)]
pub(super) fn command_begins<M>(ctx: &Context<'_, M>) {
    if !is_always_whole() {
        let flags = ctx.flags();
        let is_called = flags.contains(ContextFlags::DENY_BLOCKING) && !flags.contains(ContextFlags::SCRIPT);
        IS_CALLED.store(is_called, Ordering::Relaxed);
    }
}

/// Records that no command runs.
#[inline(always)]
pub(super) fn command_ends() {
    IS_CALLED.store(false, Ordering::Relaxed);
}

/// Returns whether a client has subscribed to a shard channel on this node.
///
/// One that leaves the channel in the same round of the loop may still count: nobody has been told of that yet. To ask
/// the server for each of many commands would take a third of its time.
pub fn has_subscriber(channel: StringRef<'_>) -> bool {
    if subscriber_cache::has_subscriber(channel.bytes()) {
        return true;
    }
    let is_heard = subscribers(channel) > 0;
    if is_heard && events::subscribe_to_rounds() {
        subscriber_cache::remember(channel.bytes());
    }
    is_heard
}

/// Returns the number of clients that have subscribed to a shard channel on this node.
///
/// Calls `PUBSUB`, which [`Module::NEEDED_COMMANDS`](super::Module::NEEDED_COMMANDS) has to list.
pub fn subscribers(channel: StringRef<'_>) -> usize {
    let Some(ctx) = timer::own_context() else { return 0 };
    let (pubsub, count) = (c"PUBSUB".as_ptr(), c"SHARDNUMSUB".as_ptr());
    // SAFETY: the module's own context; "c" takes a C string, "s" a string, which are valid during the call. A reply
    // that is not null is the module's to read and to free, once.
    let subscribers = unsafe {
        let reply = api!(RedisModule_Call(ctx, pubsub, c"cs".as_ptr(), count, channel.raw()));
        if reply.is_null() { 0 } else { second_of(reply) }
    };
    usize::try_from(subscribers).unwrap_or(0)
}

/// Sets whether the server is a node of a cluster. Called when the module is loaded.
pub(super) fn set_in_cluster(in_cluster: bool) {
    IN_CLUSTER.store(in_cluster, Ordering::Relaxed);
}

/// Returns whether the server is a node of a cluster.
pub fn is_in_cluster() -> bool {
    IN_CLUSTER.load(Ordering::Relaxed)
}

fn is_in_transaction(ctx: *mut raw::RedisModuleCtx) -> bool {
    // SAFETY: the module's own context.
    let flags = unsafe { api!(RedisModule_GetContextFlags(ctx)) };
    ContextFlags::from_bits_retain(flags as u32).contains(ContextFlags::TRANSACTION)
}

/// Returns the second element of an array, an integer. Frees the reply.
///
/// # Safety
///
/// `reply` is a reply that the module got, and nobody uses it afterwards.
unsafe fn second_of(reply: *mut raw::RedisModuleCallReply) -> c_longlong {
    // SAFETY: by contract; for a reply that is no array the server returns null, for which it is not asked on.
    unsafe {
        let second = api!(RedisModule_CallReplyArrayElement(reply, 1));
        let number = if second.is_null() { 0 } else { api!(RedisModule_CallReplyInteger(second)) };
        api!(RedisModule_FreeCallReply(reply));
        number
    }
}
