//! The waiters and how each of them is notified, and the grants that are being delivered to blocked clients.
//!
//! A waiter has an entry here while its client or its channel is known. While its wait state is `Waiting`, its request is in a
//! queue of the core. A grant is delivered until the last of its blocked clients is freed.

use std::mem;
use std::rc::Rc;

use crate::core::{
    Arena, ClientId, Connections, Cursor, Grant, HoldKey, Id, LockIndex, NameMap, OrBug, RequestId, SessionTerms,
    UnixMs, WaiterId,
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
    /// Grants that are being delivered.
    deliveries: Arena<Delivery>,
    /// The delivery of the latest grant of each lock or share.
    latest_deliveries: LockIndex<Delivery>,
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
    /// The request is in a queue.
    Waiting(RequestId),
    /// The lock is granted, and the reply is being delivered.
    Granted(Id<Delivery>),
    /// The wait has not begun, or has ended without a grant.
    Ended,
    /// The wait has ended with a panic of the module.
    Failed,
}

/// A grant that is being delivered to its blocked clients.
pub struct Delivery {
    pub grant: Grant,
    /// The number of its clients that are still blocked.
    clients: usize,
    /// Whether a client was notified of the grant, or may have been. Then the grant stays.
    is_notified: bool,
    /// The connections whose requests were notified by message.
    pubsub_clients: Vec<ClientId>,
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

    /// Returns whether the request asks for a session, and is of this connection or waits for a message on this channel.
    pub fn asks_for_session(&self, client: ClientId, channel: Option<&[u8]>) -> bool {
        let is_via_channel = channel.is_some() && self.channel().map(|own| &**own) == channel;
        self.session.is_some() && (self.client == client || is_via_channel)
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
            deliveries: Arena::new(),
            latest_deliveries: LockIndex::new(),
        }
    }

    /// Returns the number of entries of all tables, which is 0 without waiters and deliveries.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        self.check_invariants();
        let deliveries = [self.deliveries.len(), self.latest_deliveries.handle_count()];
        let messages = [self.channels.len(), self.connections.entries().count()];
        let waiters = [self.entries.len(), self.session_waiters];
        deliveries.into_iter().chain(messages).chain(waiters).sum()
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

    /// Removes a request that waits for a message, and returns its connection. Does nothing if its client is blocked.
    pub fn remove_pubsub(&mut self, id: PendingReplyId) -> Option<ClientId> {
        let client = self.get(id).filter(|entry| entry.channel().is_some())?.client;
        self.remove(id);
        Some(client)
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
    pub fn fail_all(&mut self) -> Vec<(Option<Rc<[u8]>>, RequestId)> {
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
        (self.deliveries, self.latest_deliveries) = (Arena::new(), LockIndex::new());
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

    /// Returns whether any grant is being delivered.
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Returns a grant that is being delivered, unless a message has notified this connection, or the lock was granted again.
    pub fn grant_unknown_to(&self, client: ClientId, id: Id<Delivery>) -> Option<&Grant> {
        self.deliveries
            .get(id)
            .filter(|it| !it.pubsub_clients.contains(&client))
            .map(|delivery| &delivery.grant)
            .filter(|grant| self.is_latest(id, grant))
    }

    /// Returns whether the lock of a grant was not granted again since.
    fn is_latest(&self, id: Id<Delivery>, grant: &Grant) -> bool {
        self.latest_deliveries.get(grant.hold_key()) == Some(id)
    }

    /// Records that the reply to another request notifies the holder of a lock or a share that it holds it.
    pub fn mark_holder_notified(&mut self, hold_key: HoldKey<'_>) {
        let latest = self.latest_deliveries.get(hold_key);
        debug_assert!(latest.is_none_or(|id| self.deliveries.get(id).is_some()), "the latest delivery has ended");
        if let Some(delivery) = latest.and_then(|id| self.deliveries.get_mut(id)) {
            delivery.is_notified = true;
        }
    }

    /// Begins the delivery of a grant to a number of blocked clients. Messages have notified the connections `notified`. Returns
    /// `None` if the table is full.
    pub fn begin_delivery(&mut self, grant: Grant, clients: usize, notified: Vec<ClientId>) -> Option<Id<Delivery>> {
        debug_assert!(clients > 0, "a grant without blocked clients is not delivered");
        let is_notified = !notified.is_empty();
        let id = self.deliveries.insert(Delivery { grant, clients, is_notified, pubsub_clients: notified })?;
        let grant = &self.deliveries.get(id)?.grant;
        self.latest_deliveries.insert(grant.db, Rc::clone(&grant.key), grant.hold_key().share, id);
        Some(id)
    }

    /// Records that a lock or a share was granted again, to a client that was notified. An earlier delivery has no effect then.
    pub fn supersede_delivery(&mut self, hold_key: HoldKey<'_>) {
        self.latest_deliveries.remove(hold_key);
    }

    /// Finishes the delivery of a grant to one client. With the last client, returns the grant if no client was notified and the
    /// lock was not granted again since.
    pub fn finish_delivery(&mut self, id: Id<Delivery>, is_notified: bool) -> Option<Grant> {
        // It is unknown if a panic has ended all deliveries.
        let delivery = self.deliveries.get_mut(id)?;
        debug_assert!(delivery.clients > 0, "the delivery has finished");
        delivery.is_notified |= is_notified;
        delivery.clients = delivery.clients.saturating_sub(1);
        if delivery.clients > 0 {
            return None;
        }
        let Delivery { grant, is_notified, .. } = self.deliveries.remove(id)?;
        let is_latest = self.is_latest(id, &grant);
        if is_latest {
            self.latest_deliveries.remove(grant.hold_key());
        }
        (is_latest && !is_notified).then_some(grant)
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
        let latest = self.latest_deliveries.handle_count();
        debug_assert!(latest <= self.deliveries.len(), "a lock has a delivery that has ended");
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
