//! The blocked clients that wait for locks, and the grants that are being delivered to them.

use std::mem;
use std::rc::Rc;

use crate::core::{Arena, ClientId, Grant, Id, Lease, LockIndex, RequestId, WaiterId};
use crate::server::BlockedClient;

/// All clients that the server has blocked for the module.
pub struct BlockedClients {
    clients: Arena<ClientEntry>,
    /// The number of waiting clients that asked for a session.
    session_waiters: usize,
    /// Grants that are being delivered.
    deliveries: Arena<Delivery>,
    latest_deliveries: LockIndex<Delivery>,
}

/// A handle to a client that is blocked, or about to be.
pub type BlockedId = Id<ClientEntry>;

/// A client that is blocked, or about to be.
pub struct ClientEntry {
    /// The server's handle, once the client is blocked.
    pub handle: Option<BlockedClient>,
    pub client: ClientId,
    /// The lease to renew, if the client asked for a session.
    pub session: Option<Lease>,
    wait_state: WaitState,
}

/// The state of a client's wait.
#[derive(Clone, Copy)]
pub enum WaitState {
    Waiting(RequestId),
    /// The lock is written in the client's name, and the reply is on its way.
    Granted(Id<Delivery>),
    /// The client has timed out or left.
    Over,
}

/// A grant that is being delivered to its clients.
pub struct Delivery {
    pub grant: Grant,
    /// The number of its clients that are still blocked.
    clients: usize,
    /// Whether a client has, or may have, been told of the grant. Then the grant stands.
    told: bool,
}

impl ClientEntry {
    /// Returns the state of the client's wait.
    pub fn wait_state(&self) -> WaitState {
        self.wait_state
    }
}

impl BlockedClients {
    pub const fn new() -> Self {
        Self {
            clients: Arena::new(),
            session_waiters: 0,
            deliveries: Arena::new(),
            latest_deliveries: LockIndex::new(),
        }
    }

    /// Returns the number of entries of all kinds, which is 0 when everybody has left.
    #[cfg(feature = "simulated")]
    pub fn entry_count(&self) -> usize {
        let deliveries = [self.deliveries.len(), self.latest_deliveries.lock_count()];
        deliveries.into_iter().chain([self.clients.len(), self.session_waiters]).sum()
    }

    /// Adds a client that is about to be blocked.
    pub fn insert(&mut self, client: ClientId, session: Option<Lease>) -> Option<BlockedId> {
        self.clients.insert(ClientEntry { handle: None, client, session, wait_state: WaitState::Over })
    }

    /// Returns a client, if it is still blocked.
    pub fn get(&self, id: BlockedId) -> Option<&ClientEntry> {
        self.clients.get(id)
    }

    /// Returns a client for modification, if it is still blocked.
    pub fn get_mut(&mut self, id: BlockedId) -> Option<&mut ClientEntry> {
        self.clients.get_mut(id)
    }

    /// Removes a client.
    pub fn remove(&mut self, id: BlockedId) {
        self.set_wait_state(id, WaitState::Over);
        planted!(ClientIsKept => return);
        self.clients.remove(id);
    }

    /// Returns the server's number for a waiting client, or -1 if it does not wait any more.
    pub fn client_id(&self, waiter: WaiterId) -> ClientId {
        self.clients.get(blocked_id(waiter)).map_or(-1, |blocked| blocked.client)
    }

    /// Returns the number of waiting clients that asked for a session.
    pub fn session_waiters(&self) -> usize {
        self.session_waiters
    }

    /// Sets the state of a client's wait. Returns the previous state.
    pub fn set_wait_state(&mut self, id: BlockedId, state: WaitState) -> Option<WaitState> {
        let entry = self.clients.get_mut(id)?;
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

    /// Returns a grant that is being delivered.
    pub fn grant(&self, id: Id<Delivery>) -> Option<&Grant> {
        self.deliveries.get(id).map(|delivery| &delivery.grant)
    }

    /// Records that the holder of a lock is told that it holds it, by the reply to another request.
    pub fn mark_holder_told(&mut self, db: i32, key: &[u8]) {
        let latest = self.latest_deliveries.get(db, key);
        if let Some(delivery) = latest.and_then(|id| self.deliveries.get_mut(id)) {
            delivery.told = true;
        }
    }

    /// Begins the delivery of a grant to a number of clients.
    pub fn begin_delivery(&mut self, grant: Grant, clients: usize) -> Option<Id<Delivery>> {
        let (db, key) = (grant.db, Rc::clone(&grant.key));
        let id = self.deliveries.insert(Delivery { grant, clients, told: false })?;
        self.latest_deliveries.insert(db, key, id);
        Some(id)
    }

    /// Finishes the delivery of a grant to one client.
    ///
    /// With the last client, returns the grant if nobody was told of it and the lock was not granted again meanwhile.
    pub fn finish_delivery(&mut self, id: Id<Delivery>, told: bool) -> Option<Grant> {
        let delivery = self.deliveries.get_mut(id)?;
        planted!(LastCopyDecides => delivery.told = told);
        delivery.told |= told;
        delivery.clients = delivery.clients.saturating_sub(1);
        if delivery.clients > 0 {
            return None;
        }
        let Delivery { grant, told, .. } = self.deliveries.remove(id)?;
        let is_latest = self.latest_deliveries.get(grant.db, &grant.key) == Some(id);
        if is_latest {
            self.latest_deliveries.remove(grant.db, &grant.key);
        }
        (is_latest && !told).then_some(grant)
    }
}

/// Returns the core's number for a blocked client.
pub fn waiter_id(id: BlockedId) -> WaiterId {
    WaiterId(id.to_bits())
}

/// Returns the blocked client for the core's number.
pub fn blocked_id(waiter: WaiterId) -> BlockedId {
    Id::from_bits(waiter.0)
}
