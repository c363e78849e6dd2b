//! Shard channels: messages to clients that have sent SSUBSCRIBE, which works in a cluster and without one.
//!
//! A channel is served by the node that has its slot, and subscribers are told when the slot leaves. So whoever
//! subscribes to a channel on this node is at the right one, and a channel of another node has no subscribers here.

use std::ffi::c_longlong;

use redis_module::raw;

use super::context::{Context, ContextFlags};
use super::string::StringRef;
use super::timer;

/// Publishes a message on a shard channel. Returns the number of subscribers on this node that it was given to.
///
/// At 0 nobody was told, and nobody will be. A higher number is no proof that somebody is: it counts subscribers whose
/// connection has closed, until the server notices, and those whose output limit the message exceeds.
///
/// The message leaves the server with the replies of this round of the loop, and is written neither to the AOF nor to
/// the replication stream. It can be published anywhere, also in an event, in a pause and on a replica, except where
/// [`may_publish`] says no. A command publishes before it begins its reply.
pub fn publish(channel: StringRef<'_>, message: StringRef<'_>) -> usize {
    let Some(ctx) = timer::own_context() else { return 0 };
    // In a cluster the other nodes of the shard also get the message, whose subscribers must not be told what nobody
    // here was.
    if flags(ctx).contains(ContextFlags::CLUSTER) && subscribers(channel) == 0 {
        return 0;
    }
    // SAFETY: the module's own context, and strings that are valid during the call; the server calls nothing back.
    let reached = unsafe { api!(RedisModule_PublishMessageShard(ctx, channel.raw(), message.raw())) };
    usize::try_from(reached).unwrap_or(0)
}

/// Returns whether a message that is published now stays out of replies.
///
/// Redis 7.0 puts it into the reply of a transaction if the client that has sent EXEC is itself a subscriber.
pub fn may_publish() -> bool {
    // This function came with the same version as the remedy.
    has_api!(RedisModule_AddPostNotificationJob)
        || !timer::own_context().is_some_and(|ctx| flags(ctx).contains(ContextFlags::TRANSACTION))
}

/// Returns the number of clients that have subscribed to a shard channel on this node.
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

fn flags(ctx: *mut raw::RedisModuleCtx) -> ContextFlags {
    // SAFETY: the module's own context.
    ContextFlags::from_bits_retain(unsafe { api!(RedisModule_GetContextFlags(ctx)) } as u32)
}

impl<M> Context<'_, M> {
    /// Returns whether the server runs the command only to learn which channels its arguments name.
    pub(super) fn is_asked_for_channels(&self) -> bool {
        // SAFETY: the context is valid (see `Context::new`).
        unsafe { api!(RedisModule_IsChannelsPositionRequest(self.raw())) != 0 }
    }

    /// Names the argument that is a channel to the server, which checks whether the user may publish there.
    ///
    /// # Safety
    ///
    /// The command has an argument with this number, because the server looks it up unchecked.
    pub(super) unsafe fn name_channel(&mut self, number: usize) {
        let flags = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as i32;
        if let Ok(number) = i32::try_from(number) {
            // SAFETY: the context is valid (see `Context::new`), and so is the number, by contract.
            unsafe { api!(RedisModule_ChannelAtPosWithFlags(self.raw(), number, flags)) };
        }
    }
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
