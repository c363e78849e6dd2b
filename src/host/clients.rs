//! The clients that wait for a lock, and the grants that are on their way to them.

use std::mem;
use std::rc::Rc;

use crate::core::{Arena, ClientId, Grant, Id, Lease, LockIndex, RequestId, WaiterId};
use crate::server::BlockedClient;

/// Every client the server has blocked for the module and not yet let go.
pub struct BlockedClients {
    clients: Arena<ClientEntry>,
    /// How many of those that wait want the lock to belong to their connection.
    session_waiters: usize,
    /// Grants that the server has not yet let all clients go of.
    deliveries: Arena<Delivery>,
    latest_deliveries: LockIndex<Delivery>,
}

/// Handle to a client that is blocked, or about to be.
pub type BlockedId = Id<ClientEntry>;

/// A client that is blocked, or about to be.
pub struct ClientEntry {
    /// What the server knows it by, once it is blocked.
    pub handle: Option<BlockedClient>,
    pub client: ClientId,
    /// The lease to renew, if the lock shall belong to the connection.
    pub session: Option<Lease>,
    wait_state: WaitState,
}

/// How far a blocked client has come.
#[derive(Clone, Copy)]
pub enum WaitState {
    Waiting(RequestId),
    /// The lock is written in its name; the answer is on its way.
    Granted(Id<Delivery>),
    /// Its time is up, or it has left.
    Over,
}

/// A grant that is on its way to its clients.
pub struct Delivery {
    pub grant: Grant,
    /// The clients that share it and are still blocked.
    clients: usize,
    /// Somebody has, or may have, heard of it. Then it stands.
    told: bool,
}

impl ClientEntry {
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

    /// Makes room for a client that is about to be blocked.
    pub fn insert(&mut self, client: ClientId, session: Option<Lease>) -> Option<BlockedId> {
        self.clients.insert(ClientEntry { handle: None, client, session, wait_state: WaitState::Over })
    }

    pub fn get(&self, id: BlockedId) -> Option<&ClientEntry> {
        self.clients.get(id)
    }

    pub fn get_mut(&mut self, id: BlockedId) -> Option<&mut ClientEntry> {
        self.clients.get_mut(id)
    }

    pub fn remove(&mut self, id: BlockedId) {
        self.set_wait_state(id, WaitState::Over);
        self.clients.remove(id);
    }

    /// The server's number for a connection that waits.
    pub fn client_id(&self, waiter: WaiterId) -> ClientId {
        self.clients.get(blocked_id(waiter)).map_or(-1, |blocked| blocked.client)
    }

    /// How many connections wait for a lock that shall belong to them.
    pub fn session_waiters(&self) -> usize {
        self.session_waiters
    }

    /// Moves a blocked client on to another state. Returns the one before.
    pub fn set_wait_state(&mut self, id: BlockedId, state: WaitState) -> Option<WaitState> {
        let entry = self.clients.get_mut(id)?;
        let before = mem::replace(&mut entry.wait_state, state);
        if entry.session.is_some() {
            let waits = |state: WaitState| usize::from(matches!(state, WaitState::Waiting(_)));
            self.session_waiters = self.session_waiters.saturating_add(waits(state)).saturating_sub(waits(before));
        }
        Some(before)
    }

    /// Whether there are grants that are still on their way to a client.
    pub fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }

    /// A grant that is on its way.
    pub fn grant(&self, id: Id<Delivery>) -> Option<&Grant> {
        self.deliveries.get(id).map(|delivery| &delivery.grant)
    }

    /// Notes that the holder of a lock hears that it is the holder, by an answer to another request.
    pub fn mark_holder_told(&mut self, db: i32, key: &[u8]) {
        let latest = self.latest_deliveries.get(db, key);
        if let Some(delivery) = latest.and_then(|id| self.deliveries.get_mut(id)) {
            delivery.told = true;
        }
    }

    /// Begins to tell so many clients of a grant.
    pub fn begin_delivery(&mut self, grant: Grant, clients: usize) -> Option<Id<Delivery>> {
        let (db, key) = (grant.db, Rc::clone(&grant.key));
        let id = self.deliveries.insert(Delivery { grant, clients, told: false })?;
        self.latest_deliveries.insert(db, key, id);
        Some(id)
    }

    /// Lets one client of a grant go. Returns the grant with the last of them, if nobody was told of it and there was no
    /// later grant of the lock.
    pub fn finish_delivery(&mut self, id: Id<Delivery>, told: bool) -> Option<Grant> {
        let delivery = self.deliveries.get_mut(id)?;
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

/// The core's handle to a blocked client.
pub fn waiter_id(id: BlockedId) -> WaiterId {
    WaiterId(id.to_bits())
}

/// The blocked client behind the core's handle.
pub fn blocked_id(waiter: WaiterId) -> BlockedId {
    Id::from_bits(waiter.0)
}
