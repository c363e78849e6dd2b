//! The clients that wait for a lock, and the grants that are on their way to them.

use std::mem;
use std::rc::Rc;

use crate::core::{Arena, ClientId, Grant, Id, Lease, LockIndex, RequestId, WaiterId};
use crate::server::BlockedClient;

/// Every client the server has blocked for the module and not yet let go.
pub struct BlockedClients {
    clients: Arena<Blocked>,
    /// How many of those that wait want the lock to belong to their connection.
    for_sessions: usize,
    /// Grants that the server has not yet let all clients go of.
    grants: Arena<Granting>,
    latest_grants: LockIndex<Granting>,
}

/// Handle to a client that is blocked, or about to be.
pub type BlockedId = Id<Blocked>;

/// A client that is blocked, or about to be.
pub struct Blocked {
    /// What the server knows it by, once it is blocked.
    pub blocked: Option<BlockedClient>,
    pub client: ClientId,
    /// The lease to renew, if the lock shall belong to the connection.
    pub session: Option<Lease>,
    stage: Stage,
}

/// How far a blocked client has come.
#[derive(Clone, Copy)]
pub enum Stage {
    Waiting(RequestId),
    /// The lock is written in its name; the answer is on its way.
    Granted(Id<Granting>),
    /// Its time is up, or it has left.
    Over,
}

/// A grant that is on its way to its clients.
pub struct Granting {
    pub grant: Grant,
    /// The clients that share it and are still blocked.
    clients: usize,
    /// Somebody has, or may have, heard of it. Then it stands.
    told: bool,
}

impl Blocked {
    pub fn stage(&self) -> Stage {
        self.stage
    }
}

impl BlockedClients {
    pub const fn new() -> Self {
        Self { clients: Arena::new(), for_sessions: 0, grants: Arena::new(), latest_grants: LockIndex::new() }
    }

    /// Makes room for a client that is about to be blocked.
    pub fn insert(&mut self, client: ClientId, session: Option<Lease>) -> Option<BlockedId> {
        self.clients.insert(Blocked { blocked: None, client, session, stage: Stage::Over })
    }

    pub fn get(&self, id: BlockedId) -> Option<&Blocked> {
        self.clients.get(id)
    }

    pub fn get_mut(&mut self, id: BlockedId) -> Option<&mut Blocked> {
        self.clients.get_mut(id)
    }

    pub fn remove(&mut self, id: BlockedId) {
        self.set_stage(id, Stage::Over);
        self.clients.remove(id);
    }

    /// The server's number for a connection that waits.
    pub fn client_id(&self, waiter: WaiterId) -> ClientId {
        self.clients.get(id_of(waiter)).map_or(-1, |blocked| blocked.client)
    }

    /// How many connections wait for a lock that shall belong to them.
    pub fn for_sessions(&self) -> usize {
        self.for_sessions
    }

    /// Moves a blocked client on to another stage. Returns the one before.
    pub fn set_stage(&mut self, id: BlockedId, stage: Stage) -> Option<Stage> {
        let entry = self.clients.get_mut(id)?;
        let before = mem::replace(&mut entry.stage, stage);
        if entry.session.is_some() {
            let waits = |stage: Stage| usize::from(matches!(stage, Stage::Waiting(_)));
            self.for_sessions = self.for_sessions.saturating_add(waits(stage)).saturating_sub(waits(before));
        }
        Some(before)
    }

    /// Whether there are grants that are still on their way to a client.
    pub fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// A grant that is on its way.
    pub fn grant(&self, id: Id<Granting>) -> Option<&Grant> {
        self.grants.get(id).map(|granting| &granting.grant)
    }

    /// Notes that the holder of a lock hears that it is the holder, by an answer to another request.
    pub fn holder_is_told(&mut self, db: i32, key: &[u8]) {
        let latest = self.latest_grants.get(db, key);
        if let Some(granting) = latest.and_then(|id| self.grants.get_mut(id)) {
            granting.told = true;
        }
    }

    /// Begins to tell so many clients of a grant.
    pub fn open_grant(&mut self, grant: Grant, clients: usize) -> Option<Id<Granting>> {
        let (db, key) = (grant.db, Rc::clone(&grant.key));
        let id = self.grants.insert(Granting { grant, clients, told: false })?;
        self.latest_grants.insert(db, key, id);
        Some(id)
    }

    /// Lets one client of a grant go. Returns the grant with the last of them, if nobody was told of it and there was no
    /// later grant of the lock.
    pub fn close_grant(&mut self, id: Id<Granting>, told: bool) -> Option<Grant> {
        let granting = self.grants.get_mut(id)?;
        granting.told |= told;
        granting.clients = granting.clients.saturating_sub(1);
        if granting.clients > 0 {
            return None;
        }
        let Granting { grant, told, .. } = self.grants.remove(id)?;
        let is_latest = self.latest_grants.get(grant.db, &grant.key) == Some(id);
        if is_latest {
            self.latest_grants.remove(grant.db, &grant.key);
        }
        (is_latest && !told).then_some(grant)
    }
}

/// The core's handle to a blocked client.
pub fn connection_of(id: BlockedId) -> WaiterId {
    WaiterId(id.to_bits())
}

/// The blocked client behind the core's handle.
pub fn id_of(waiter: WaiterId) -> BlockedId {
    Id::from_bits(waiter.0)
}
