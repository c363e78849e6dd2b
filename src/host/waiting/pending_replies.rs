//! Those who wait for locks, how each of them is told, and the grants that are being delivered to blocked clients.

use std::mem;
use std::rc::Rc;

use crate::core::{
    Arena, ClientId, Connections, Cursor, Grant, HoldKey, Id, Lease, LockIndex, NameMap, RequestId, WaiterId,
};
use crate::server::BlockedClient;

/// All waiting requests.
pub struct PendingReplies {
    entries: Arena<PendingReply>,
    /// The number of waiting requests that asked for a session.
    session_waiters: usize,
    /// The number of requests that are told by message.
    pubsub_count: usize,
    /// The channels that messages go to, each kept once, with the number of its requests.
    channels: NameMap<usize>,
    /// The requests that are told by message. Unlike a blocked client, they do not end with their connection by
    /// themselves.
    connections: Connections<PendingReplyId>,
    /// A walk over the requests that end because the server has become another master or a replica, or after a panic: those
    /// that were there when it began, the last of which has this number.
    aborted: (Cursor, Option<PendingReplyId>),
    /// Grants that are being delivered.
    deliveries: Arena<Delivery>,
    latest_deliveries: LockIndex<Delivery>,
}

/// A handle to a request that waits, or is about to.
pub type PendingReplyId = Id<PendingReply>;

/// A request that waits, or is about to.
pub struct PendingReply {
    pub reply_via: ReplyVia,
    /// The connection that asked.
    pub client: ClientId,
    /// The lease to renew, if the request asked for a session.
    pub session: Option<Lease>,
    wait_state: WaitState,
}

/// How a waiter is told of the end of its wait.
pub enum ReplyVia {
    /// By the reply to its command. The server's handle is there once the client is blocked.
    BlockedClient(Option<BlockedClient>),
    /// By a message on this shard channel.
    PubSub(Rc<[u8]>),
}

/// The state of a wait.
#[derive(Clone, Copy)]
pub enum WaitState {
    Waiting(RequestId),
    /// The lock is written in the client's name, and the reply is on its way.
    Granted(Id<Delivery>),
    /// The wait has ended otherwise.
    Ended,
    /// The same, because something has gone wrong inside the module.
    Failed,
}

/// A grant that is being delivered to its clients.
pub struct Delivery {
    pub grant: Grant,
    /// The number of its clients that are still blocked.
    clients: usize,
    /// Whether a client has, or may have, been told of the grant. Then the grant stands.
    is_notified: bool,
    /// The connections whose requests were told by message.
    pubsub_clients: Vec<ClientId>,
}

impl PendingReply {
    /// Returns the state of the wait.
    pub fn wait_state(&self) -> WaitState {
        self.wait_state
    }

    /// Returns the channel of a waiter that is told by message.
    pub fn channel(&self) -> Option<&Rc<[u8]>> {
        match &self.reply_via {
            ReplyVia::BlockedClient(_) => None,
            ReplyVia::PubSub(channel) => Some(channel),
        }
    }

    /// Returns whether it asks for a session, and a request of this connection, or one that is told on this channel, is the
    /// same.
    pub fn asks_for_session(&self, client: ClientId, channel: Option<&[u8]>) -> bool {
        let is_via_channel = channel.is_some() && self.channel().map(|own| &**own) == channel;
        self.session.is_some() && (self.client == client || is_via_channel)
    }

    /// Sets the server's handle, when the client is blocked.
    pub fn set_handle(&mut self, handle: Option<BlockedClient>) {
        self.reply_via = ReplyVia::BlockedClient(handle);
    }

    /// Returns the server's handle of a blocked client.
    pub fn handle(&mut self) -> Option<&mut BlockedClient> {
        match &mut self.reply_via {
            ReplyVia::BlockedClient(handle) => handle.as_mut(),
            ReplyVia::PubSub(_) => None,
        }
    }
}

impl PendingReplies {
    pub const fn new() -> Self {
        Self {
            entries: Arena::new(),
            session_waiters: 0,
            pubsub_count: 0,
            channels: NameMap::new(),
            connections: Connections::new(),
            aborted: (Cursor::END, None),
            deliveries: Arena::new(),
            latest_deliveries: LockIndex::new(),
        }
    }

    /// Returns the number of entries of all kinds, which is 0 when everybody has left.
    #[cfg(any(test, feature = "simulated"))]
    pub fn entry_count(&self) -> usize {
        let deliveries = [self.deliveries.len(), self.latest_deliveries.handle_count()];
        let messages = [self.channels.len(), self.connections.entries().count()];
        let waiters = [self.entries.len(), self.session_waiters];
        deliveries.into_iter().chain(messages).chain(waiters).sum()
    }

    /// Adds a request whose client is about to be blocked.
    pub fn insert_blocked(&mut self, client: ClientId, session: Option<Lease>) -> Option<PendingReplyId> {
        self.insert(ReplyVia::BlockedClient(None), client, session)
    }

    /// Adds a request that is to be told by message.
    pub fn insert_pubsub(
        &mut self,
        client: ClientId,
        session: Option<Lease>,
        channel: &[u8],
    ) -> Option<PendingReplyId> {
        let known = self.channels.get_key_value(channel);
        let channel = known.map_or_else(|| channel.into(), |(known, _)| Rc::clone(known));
        let id = self.insert(ReplyVia::PubSub(Rc::clone(&channel)), client, session)?;
        self.connections.add(client, id);
        self.pubsub_count = self.pubsub_count.saturating_add(1);
        match self.channels.get_mut(&channel) {
            Some(requests) => *requests = requests.saturating_add(1),
            None => _ = self.channels.insert(channel, 1),
        }
        Some(id)
    }

    fn insert(&mut self, reply_via: ReplyVia, client: ClientId, session: Option<Lease>) -> Option<PendingReplyId> {
        self.entries.insert(PendingReply { reply_via, client, session, wait_state: WaitState::Ended })
    }

    /// Returns an entry, if it is still there.
    pub fn get(&self, id: PendingReplyId) -> Option<&PendingReply> {
        self.entries.get(id)
    }

    /// Returns an entry for modification, if it is still there.
    pub fn get_mut(&mut self, id: PendingReplyId) -> Option<&mut PendingReply> {
        self.entries.get_mut(id)
    }

    /// Removes an entry.
    pub fn remove(&mut self, id: PendingReplyId) {
        self.set_wait_state(id, WaitState::Ended);
        let Some(PendingReply { reply_via: ReplyVia::PubSub(channel), client, .. }) = self.entries.remove(id) else {
            return;
        };
        self.connections.remove(client, id);
        self.pubsub_count = self.pubsub_count.saturating_sub(1);
        match self.channels.get_mut(&channel) {
            Some(requests) if *requests > 1 => *requests = requests.saturating_sub(1),
            _ => _ = self.channels.remove(&channel),
        }
    }

    /// Returns the number of requests that are told by message.
    pub fn pubsub_count(&self) -> usize {
        self.pubsub_count
    }

    /// Returns whether any request is told by message.
    pub fn has_messages(&self) -> bool {
        self.pubsub_count > 0
    }

    /// Records that a connection has closed. [`next_of_closed`](Self::next_of_closed) finds its requests.
    pub fn connection_closed(&mut self, client: ClientId) {
        self.connections.close(client);
    }

    /// Returns the channel of a waiter that is told by message, and whether the connection that asked has closed: then
    /// nothing is told any more.
    pub fn channel_of(&self, id: PendingReplyId) -> Option<(Rc<[u8]>, bool)> {
        let entry = self.get(id)?;
        Some((Rc::clone(entry.channel()?), self.connections.is_closed(entry.client)))
    }

    /// Returns a request of a closed connection, which is to be removed.
    pub fn next_of_closed(&mut self) -> Option<PendingReplyId> {
        self.connections.next_of_closed().map(|(_, id)| id)
    }

    /// Records that all requests that are told by message now are lost. [`next_aborted`](Self::next_aborted) returns them.
    pub fn abort_all(&mut self) {
        self.aborted = (Cursor::start(), self.entries.latest());
    }

    /// Ends all waits, after a panic that may have interrupted any change.
    /// [`next_aborted`](Self::next_aborted) returns those whose
    /// clients are blocked. The others are removed here, and returned with their channels. What was granted stays granted, whether
    /// its client is told or not.
    pub fn fail_all(&mut self) -> Vec<(Rc<[u8]>, RequestId)> {
        let (mut cursor, mut unnotified) = (Cursor::start(), Vec::new());
        while let Some(id) = self.entries.next(&mut cursor) {
            let Some(entry) = self.entries.get_mut(id) else { break };
            let was_waiting = match entry.wait_state {
                WaitState::Waiting(request) => Some(request),
                _ => None,
            };
            if was_waiting.is_some() {
                entry.wait_state = WaitState::Failed;
            }
            if let ReplyVia::PubSub(channel) = &entry.reply_via {
                unnotified.extend(was_waiting.map(|request| (Rc::clone(channel), request)));
                self.entries.remove(id);
            }
        }
        self.aborted = (Cursor::start(), self.entries.latest());
        (self.session_waiters, self.pubsub_count) = (0, 0);
        (self.channels, self.connections) = (NameMap::new(), Connections::new());
        (self.deliveries, self.latest_deliveries) = (Arena::new(), LockIndex::new());
        unnotified
    }

    /// Returns the next request that is lost, or none in its place: then a later one was passed by. Returns `None` if there are
    /// no more.
    pub fn next_aborted(&mut self) -> Option<Option<PendingReplyId>> {
        let (cursor, latest) = &mut self.aborted;
        let id = self.entries.next(cursor)?;
        Some(latest.is_some_and(|latest| !id.is_later_than(latest)).then_some(id))
    }

    /// Returns whether requests are to be removed, or told that they are lost.
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
            self.session_waiters = self.session_waiters.saturating_add(waits(state)).saturating_sub(waits(before));
        }
        Some(before)
    }

    /// Returns whether any grant is being delivered.
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// Returns a grant that is being delivered, unless a message has told this connection of it, or the lock was granted again.
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

    /// Records that the holder of a lock or a share is told that it holds it, by the reply to another request.
    pub fn mark_holder_notified(&mut self, hold_key: HoldKey<'_>) {
        let latest = self.latest_deliveries.get(hold_key);
        if let Some(delivery) = latest.and_then(|id| self.deliveries.get_mut(id)) {
            delivery.is_notified = true;
        }
    }

    /// Begins the delivery of a grant to a number of blocked clients. The requests of these connections were told by message.
    pub fn begin_delivery(
        &mut self,
        grant: Grant,
        clients: usize,
        pubsub_clients: Vec<ClientId>,
    ) -> Option<Id<Delivery>> {
        let id = self.deliveries.insert(Delivery {
            grant,
            clients,
            is_notified: !pubsub_clients.is_empty(),
            pubsub_clients,
        })?;
        let grant = &self.deliveries.get(id)?.grant;
        self.latest_deliveries.insert(grant.db, Rc::clone(&grant.key), grant.hold_key().share, id);
        Some(id)
    }

    /// Records that a lock or a share was granted anew, to somebody who has been told: what is on its way is void.
    pub fn supersede_delivery(&mut self, hold_key: HoldKey<'_>) {
        self.latest_deliveries.remove(hold_key);
    }

    /// Finishes the delivery of a grant to one client.
    ///
    /// With the last client, returns the grant if nobody was told of it and the lock was not granted again meanwhile.
    pub fn finish_delivery(&mut self, id: Id<Delivery>, is_notified: bool) -> Option<Grant> {
        let delivery = self.deliveries.get_mut(id)?;
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
}

/// Returns the core's number for an entry.
pub fn waiter_id(id: PendingReplyId) -> WaiterId {
    WaiterId(id.to_bits())
}

/// Returns the entry for the core's number.
pub fn pending_id(waiter: WaiterId) -> PendingReplyId {
    Id::from_bits(waiter.0)
}

#[cfg(test)]
mod tests;
