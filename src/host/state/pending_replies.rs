//! The waiters and how each of them is notified.
//!
//! A waiter has an entry here while its client or its channel is known. While its wait state is `Waiting`, its request is in a
//! queue of the core.

use std::mem;
use std::rc::Rc;

use crate::core::{
    Arena, ClientId, Connections, Cursor, DeliveryId, EntryId, Id, NameMap, OrBug, SessionTerms, UnixMs, WaiterId,
};
use crate::server::BlockedClient;

/// All waiting requests.
pub struct PendingReplies {
    entries: Arena<PendingReply>,
    /// The number of waiting requests that asked for a session.
    session_waiters: usize,
    /// The channels of the requests that wait for a message, each stored once, with the number of its requests.
    channels: NameMap<usize>,
    /// The requests that wait for a message, by connection. The server reports a closed connection of a blocked client only.
    connections: Connections<PendingReplyId>,
    /// The scan of the requests that are aborted, after a change of the server's role or after a panic. It ends with the request
    /// that was the latest when the scan began.
    aborted: (Cursor, Option<PendingReplyId>),
}

/// A handle to an entry.
pub type PendingReplyId = Id<PendingReply>;

/// A request that waits, or will wait after this step, or whose blocked client is not freed yet.
pub struct PendingReply {
    pub reply_via: ReplyVia,
    /// The connection of the request.
    pub client: ClientId,
    /// The terms of the session, if the request asked for one.
    pub session: Option<SessionTerms>,
    wait_state: WaitState,
}

/// How a waiter is notified of the end of its wait.
pub enum ReplyVia {
    /// By the reply to its command. The server's handle is known as soon as the client is blocked.
    BlockedClient(Option<BlockedClient>),
    /// By a message on this shard channel.
    PubSub(Rc<[u8]>),
}

/// The state of a wait.
#[derive(Clone, Copy)]
pub enum WaitState {
    /// The request waits at this queue entry.
    Waiting(EntryId),
    /// The lock is granted, and the reply is being delivered.
    Granted(DeliveryId),
    /// The wait has not begun, or has ended without a grant.
    Ended,
    /// A later request has taken the place of this one.
    Replaced,
    /// The wait has ended with a panic of the module.
    Failed,
}

impl PendingReply {
    /// Returns the state of the wait.
    pub fn wait_state(&self) -> WaitState {
        self.wait_state
    }

    /// Returns the channel of a request that waits for a message.
    pub fn channel(&self) -> Option<&Rc<[u8]>> {
        if let ReplyVia::PubSub(channel) = &self.reply_via { Some(channel) } else { None }
    }

    /// Returns the server's handle of a blocked client.
    pub fn handle(&mut self) -> Option<&mut BlockedClient> {
        if let ReplyVia::BlockedClient(handle) = &mut self.reply_via { handle.as_mut() } else { None }
    }
}

impl PendingReplies {
    pub const fn new() -> Self {
        Self {
            entries: Arena::new(),
            session_waiters: 0,
            channels: NameMap::new(),
            connections: Connections::new(),
            aborted: (Cursor::END, None),
        }
    }

    /// Returns the number of entries of all tables, which is 0 without waiters and deliveries.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.check_invariants();
        let messages = [self.channels.len(), self.connections.entries().count()];
        let waiters = [self.entries.len(), self.session_waiters];
        messages.into_iter().chain(waiters).sum()
    }

    /// Adds a request whose client will be blocked. Returns `None` if the table is full.
    pub fn insert_blocked(&mut self, client: ClientId, session: Option<SessionTerms>) -> Option<PendingReplyId> {
        self.insert(ReplyVia::BlockedClient(None), client, session)
    }

    /// Adds a request that waits for a message. Returns `None` if the table is full.
    pub fn insert_pubsub(
        &mut self,
        client: ClientId,
        session: Option<SessionTerms>,
        channel: &[u8],
    ) -> Option<PendingReplyId> {
        let known = self.channels.get_key_value(channel);
        let channel = known.map_or_else(|| channel.into(), |(known, _)| Rc::clone(known));
        let id = self.insert(ReplyVia::PubSub(Rc::clone(&channel)), client, session)?;
        self.connections.add(client, id);
        match self.channels.get_mut(&channel) {
            Some(requests) => *requests = requests.saturating_add(1),
            None => _ = self.channels.insert(channel, 1),
        }
        Some(id)
    }

    fn insert(
        &mut self,
        reply_via: ReplyVia,
        client: ClientId,
        session: Option<SessionTerms>,
    ) -> Option<PendingReplyId> {
        self.entries.insert(PendingReply { reply_via, client, session, wait_state: WaitState::Ended })
    }

    /// Returns an entry, or `None` if it was removed.
    pub fn get(&self, id: PendingReplyId) -> Option<&PendingReply> {
        self.entries.get(id)
    }

    /// Returns an entry for modification, or `None` if it was removed.
    pub fn get_mut(&mut self, id: PendingReplyId) -> Option<&mut PendingReply> {
        self.entries.get_mut(id)
    }

    /// Removes an entry, if it was not removed before.
    pub fn remove(&mut self, id: PendingReplyId) {
        self.set_wait_state(id, WaitState::Ended);
        let Some(PendingReply { reply_via: ReplyVia::PubSub(channel), client, .. }) = self.entries.remove(id) else {
            return;
        };
        self.connections.remove(client, id);
        match self.channels.get_mut(&channel) {
            Some(requests) if *requests > 1 => *requests = requests.saturating_sub(1),
            _ => _ = self.channels.remove(&channel),
        }
    }

    /// Removes a request that waits for a message. Returns `false` if its client is blocked.
    pub fn remove_pubsub(&mut self, id: PendingReplyId) -> bool {
        let waits_for_message = self.get(id).is_some_and(|entry| entry.channel().is_some());
        if waits_for_message {
            self.remove(id);
        }
        waits_for_message
    }

    /// Returns the number of requests that wait for a message. O(N) in the number of their channels.
    pub fn pubsub_count(&self) -> usize {
        self.channels.values().sum()
    }

    /// Returns whether any request waits for a message.
    pub fn has_messages(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Records that a connection has closed at `now`. [`next_of_closed`](Self::next_of_closed) finds its requests.
    pub fn connection_closed(&mut self, client: ClientId, now: UnixMs) {
        self.connections.close(client, now);
    }

    /// Returns the channel of a request that waits for a message, and whether its connection has closed. Then no message is sent.
    pub fn channel_of(&self, id: PendingReplyId) -> Option<(Rc<[u8]>, bool)> {
        let entry = self.get(id)?;
        Some((Rc::clone(entry.channel()?), self.connections.is_closed(entry.client)))
    }

    /// Returns a request of a closed connection, which the caller removes.
    pub fn next_of_closed(&mut self) -> Option<PendingReplyId> {
        let id = self.connections.next_of_closed().map(|(_, id)| id)?;
        debug_assert!(self.get(id).is_some_and(|it| it.channel().is_some()), "a connection has a request that ended");
        Some(id)
    }

    /// Aborts all requests that wait for a message now. [`next_aborted`](Self::next_aborted) returns them.
    pub fn abort_all(&mut self) {
        self.aborted = (Cursor::start(), self.entries.latest());
    }

    /// Ends all waits, after a panic that may have interrupted any change. A grant stays, whether its client was notified or not.
    /// Returns the requests that waited, with the channels of those that waited for a message. Removes the latter.
    /// [`next_aborted`](Self::next_aborted) returns the requests whose clients are blocked.
    pub fn fail_all(&mut self) -> Vec<(Option<Rc<[u8]>>, EntryId)> {
        let (mut cursor, mut failed) = (Cursor::start(), Vec::new());
        while let Some(id) = self.entries.next(&mut cursor) {
            let entry = self.entries.get_mut(id).or_bug("the scan returned an entry that does not exist");
            let Some(entry) = entry else { break };
            let was_waiting = if let WaitState::Waiting(request) = entry.wait_state { Some(request) } else { None };
            if was_waiting.is_some() {
                entry.wait_state = WaitState::Failed;
            }
            let channel = entry.channel().map(Rc::clone);
            if channel.is_some() {
                self.entries.remove(id);
            }
            failed.extend(was_waiting.map(|request| (channel, request)));
        }
        self.aborted = (Cursor::start(), self.entries.latest());
        self.session_waiters = 0;
        (self.channels, self.connections) = (NameMap::new(), Connections::new());
        failed
    }

    /// Returns the next request that is aborted, or `Some(None)` for a later request, which the scan skips. Returns `None` at the
    /// end of the scan.
    pub fn next_aborted(&mut self) -> Option<Option<PendingReplyId>> {
        let (cursor, latest) = &mut self.aborted;
        let id = self.entries.next(cursor)?;
        Some(latest.is_some_and(|latest| !id.is_later_than(latest)).then_some(id))
    }

    /// Returns whether requests of closed connections are to be removed, or requests are to be aborted.
    pub fn has_ended(&self) -> bool {
        self.connections.has_closed() || self.aborted.0.has_more()
    }

    /// Returns the number of waiting requests that asked for a session.
    pub fn session_waiters(&self) -> usize {
        self.session_waiters
    }

    /// Sets the state of a wait. Returns the previous state.
    pub fn set_wait_state(&mut self, id: PendingReplyId, state: WaitState) -> Option<WaitState> {
        let entry = self.entries.get_mut(id)?;
        let before = mem::replace(&mut entry.wait_state, state);
        if entry.session.is_some() {
            let waits = |state: WaitState| usize::from(matches!(state, WaitState::Waiting(_)));
            debug_assert!(self.session_waiters >= waits(before), "the request was not counted");
            self.session_waiters = self.session_waiters.saturating_add(waits(state)).saturating_sub(waits(before));
        }
        Some(before)
    }

    /// Checks that counters and indexes agree with the entries. It reads all of them.
    #[cfg(any(test, feature = "simulated"))]
    pub fn check_invariants(&self) {
        let (mut pubsub, mut session_waiters, mut cursor) = (0_usize, 0_usize, Cursor::start());
        while let Some(entry) = self.entries.next(&mut cursor).and_then(|id| self.entries.get(id)) {
            let waits_for_session = entry.session.is_some() && matches!(entry.wait_state, WaitState::Waiting(_));
            session_waiters = session_waiters.saturating_add(waits_for_session.into());
            let Some(channel) = entry.channel() else { continue };
            pubsub = pubsub.saturating_add(1);
            let stored = self.channels.get_key_value(channel);
            debug_assert!(stored.is_some_and(|(stored, _)| Rc::ptr_eq(stored, channel)), "a channel is stored twice");
        }
        debug_assert_eq!(session_waiters, self.session_waiters, "the count of requests for a session is wrong");
        debug_assert_eq!(pubsub, self.connections.entries().count(), "the connections have other requests");
        debug_assert_eq!(pubsub, self.pubsub_count(), "the channels have other requests");
    }
}

/// Returns the waiter, as the core knows it, of an entry.
pub fn waiter_id(id: PendingReplyId) -> WaiterId {
    WaiterId(id.to_bits())
}

/// Returns the entry of a waiter.
pub fn pending_id(waiter: WaiterId) -> PendingReplyId {
    Id::from_bits(waiter.0)
}

#[cfg(test)]
mod tests;
