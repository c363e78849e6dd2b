//! Clients that the server has blocked for us.
//!
//! They are blocked **on keys**, without a time-out of the server's: only that form answers a client whose time is up
//! in the very loop round in which it is unblocked (Redis 7.0 and 7.2 lose the reply or crash otherwise), knows its
//! private data in every callback, and is told -MOVED by the server itself. The key is never signalled by us; a client
//! is answered by setting its stage and unblocking it, whereupon the server asks `on_unblocked` for the reply.
//!
//! The server calls, depending on its version: `on_unblocked` inside or after our call, `on_gone` instead of it when
//! the client leaves otherwise, and `on_freed` exactly once at the end.

use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::{mem, ptr};

use redis_module::raw;

use super::alarm;
use super::clock;
use super::config;
use super::context::Context;
use super::events;
use super::guard::guard;
use super::key::Key;
use super::reply;
use super::state::{self, State};
use super::text::Text;
use crate::command::Wait;
use crate::core::{
    Arena, Begin, Claim, ClientId, ConnectionId, Grant, Id, Join, Lease, LockIndex, Refusal, RequestId, TakeBack,
    UnixMs, count,
};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Every client the server has blocked for us and not yet let go.
pub struct BlockedClients {
    clients: Arena<Blocked>,
    /// How many of those that wait want the lock to belong to their connection.
    for_sessions: usize,
    /// Grants that the server has not yet let all clients go of.
    grants: Arena<Granting>,
    latest_grants: LockIndex<Granting>,
}

type BlockedId = Id<Blocked>;

struct Blocked {
    handle: *mut raw::RedisModuleBlockedClient,
    client: ClientId,
    /// The lease to renew, if the lock shall belong to the connection.
    session: Option<Lease>,
    stage: Stage,
    /// The answer was made.
    answered: bool,
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
    grant: Grant,
    /// The clients that share it and are still blocked.
    clients: usize,
    /// Somebody has, or may have, heard of it. Then it stands.
    told: bool,
}

impl BlockedClients {
    pub const fn new() -> Self {
        Self { clients: Arena::new(), for_sessions: 0, grants: Arena::new(), latest_grants: LockIndex::new() }
    }

    /// The server's number for a connection that waits.
    pub fn client_id(&self, connection: ConnectionId) -> ClientId {
        self.clients.get(Id::from_bits(connection.0)).map_or(-1, |blocked| blocked.client)
    }

    /// How many connections wait for a lock that shall belong to them.
    pub fn for_sessions(&self) -> usize {
        self.for_sessions
    }

    fn is_answered(&self, id: BlockedId) -> bool {
        self.clients.get(id).is_some_and(|entry| entry.answered)
    }

    /// Whether there are grants that are still on their way to a client.
    pub fn has_grants(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Notes that the holder of a lock hears that it is the holder, by an answer to another request.
    pub fn holder_is_told(&mut self, db: i32, key: &[u8]) {
        let latest = self.latest_grants.get(db, key);
        if let Some(granting) = latest.and_then(|id| self.grants.get_mut(id)) {
            granting.told = true;
        }
    }

    fn open_grant(&mut self, grant: Grant, clients: usize) -> Option<Id<Granting>> {
        let (db, key) = (grant.db, Rc::clone(&grant.key));
        let id = self.grants.insert(Granting { grant, clients, told: false })?;
        self.latest_grants.insert(db, key, id);
        Some(id)
    }

    /// Lets one client of a grant go. Returns the grant with the last of them, if nobody was told of it and there was no
    /// later grant of the lock.
    fn close_grant(&mut self, id: Id<Granting>, told: bool) -> Option<Grant> {
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

    /// Moves a blocked client on to another stage. Returns the one before.
    fn set_stage(&mut self, id: BlockedId, stage: Stage) -> Option<Stage> {
        let entry = self.clients.get_mut(id)?;
        let before = mem::replace(&mut entry.stage, stage);
        if entry.session.is_some() {
            let waits = |stage: Stage| usize::from(matches!(stage, Stage::Waiting(_)));
            self.for_sessions = self.for_sessions.saturating_add(waits(stage)).saturating_sub(waits(before));
        }
        Some(before)
    }
}

/// Lets the client of this command wait in line for a lock. `true`: it waits, and the caller answers nothing. `false`:
/// the server does not block this client, as Valkey 9.1 one that has subscribed to a channel.
pub fn wait(key: &Key<'_>, caller: &[u8], wait: Wait, now: UnixMs) -> Result<bool, Refusal> {
    events::listen();
    let (client, db) = (key.ctx.client_id(), key.ctx.db());
    let deadline = wait.patience.deadline(now, config::MAX_BLOCK_MS.get());
    let claim = Claim { kind: wait.kind, owner: caller.into(), lease: wait.lease };
    let session = wait.lease.filter(|_| wait.session);
    let limit = usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX);
    let (id, joined) = state::with(|State { room, blocked, .. }| {
        let entry = Blocked { handle: ptr::null_mut(), client, session, stage: Stage::Over, answered: false };
        let id = blocked.clients.insert(entry)?;
        let connection = ConnectionId(id.to_bits());
        let joined = room.join(Join { db, key: key.name.bytes(), claim, connection, now, deadline }, limit);
        if joined.is_none() {
            blocked.clients.remove(id);
        }
        Some((id, joined?))
    })
    .ok_or(Refusal::QueueFull)?;

    let handle = block(key.ctx, key.name, id);
    Ok(state::with(|State { room, blocked, stats, .. }| {
        if handle.is_null() {
            room.leave(joined.request, None);
            blocked.clients.remove(id);
            return false;
        }
        if let Some(entry) = blocked.clients.get_mut(id) {
            entry.handle = handle;
        }
        blocked.set_stage(id, Stage::Waiting(joined.request));
        if joined.again {
            count(&mut stats.resent);
        }
        true
    }))
}

fn block(ctx: Context<'_>, key: Text<'_>, id: BlockedId) -> *mut raw::RedisModuleBlockedClient {
    let mut keys = [key.raw()];
    let (on_signal, on_unblocked) = (Some(on_signal as _), Some(on_unblocked as _));
    let private = to_private_data(id);
    // SAFETY: context and key are valid while this command runs, and the server keeps neither array nor context; the
    // private data is a number. The callbacks have the signatures the API asks for.
    unsafe {
        let handle = api!(RedisModule_BlockClientOnKeys(
            ctx.raw(),
            on_signal,
            on_unblocked,
            Some(on_freed),
            0,
            keys.as_mut_ptr(),
            1,
            private,
        ));
        if !handle.is_null() {
            api!(RedisModule_SetDisconnectCallback(handle, Some(on_gone)));
        }
        handle
    }
}

/// Whether the lock shall belong to one of the connections that wait for this grant.
pub fn asks_for_session(grant: &Grant) -> bool {
    state::with(|State { blocked, .. }| {
        let find = |connection: &ConnectionId| blocked.clients.get(Id::from_bits(connection.0));
        grant.connections.iter().filter_map(find).any(|entry| entry.session.is_some())
    })
}

/// Tells every connection of a grant that the lock is theirs, and makes those its session that asked for it. To be
/// called last, after all effects of the command.
pub fn answer_grant(mut grant: Grant, lease_end: Option<UnixMs>, now: UnixMs) {
    let connections = mem::take(&mut grant.connections);
    state::with(|state| {
        connections.iter().for_each(|connection| begin_session(state, &grant, *connection, now));
        if let Some(session) = state.sessions.of(grant.db, &grant.key) {
            state.sessions.lease_ends(session, lease_end);
        }
    });
    let Some(granting) = state::with(|state| state.blocked.open_grant(grant, connections.len())) else { return };
    for connection in connections {
        answer(connection, Stage::Granted(granting));
    }
}

fn begin_session(state: &mut State, grant: &Grant, connection: ConnectionId, now: UnixMs) {
    let Some(entry) = state.blocked.clients.get(Id::from_bits(connection.0)) else { return };
    if let Some(lease) = entry.session {
        let (db, key, client) = (grant.db, Rc::clone(&grant.key), entry.client);
        let (kind, owner) = (grant.claim.kind, grant.claim.owner.clone());
        state.sessions.begin(Begin { db, key, kind, owner, holds: 1, lease, client }, now);
    }
}

/// Answers nil to connections whose place was given up.
pub fn answer_withdrawn(connections: Vec<ConnectionId>) {
    for connection in connections {
        state::with(|state| count(&mut state.stats.cancelled));
        answer(connection, Stage::Over);
    }
}

/// Ends the wait of a connection that is in no queue any more: the server fetches the reply that belongs to `stage`.
/// To be called last, after all effects of the command: the server may call back at once.
pub fn answer(connection: ConnectionId, stage: Stage) {
    let id = Id::from_bits(connection.0);
    let handle = state::with(|State { blocked, .. }| {
        blocked.set_stage(id, stage)?;
        blocked.clients.get(id).map(|entry| entry.handle)
    });
    if let Some(handle) = handle {
        // SAFETY: the entry exists, so the server has not freed the blocked client; the server ignores a second call.
        unsafe { api!(RedisModule_UnblockClient(handle, ptr::null_mut())) };
    }
}

/// Lets a client go of its grant, if it has one. If nobody was told, the lock is to be taken back; if others were, it does
/// not belong to this one's connection.
fn let_go(state: &mut State, id: BlockedId, told: bool) {
    let State { blocked, sessions, take_backs, .. } = state;
    let Some(&Blocked { stage: Stage::Granted(granting), client, .. }) = blocked.clients.get(id) else { return };
    blocked.set_stage(id, Stage::Over);
    let lock = blocked.grants.get(granting).map(|granting| (granting.grant.db, Rc::clone(&granting.grant.key)));
    if let Some((db, key)) = lock.filter(|_| !told) {
        sessions.dismiss(db, &key, client);
    }
    if let Some(untold) = blocked.close_grant(granting, told) {
        take_backs.add(TakeBack::of_grant(untold));
    }
}

/// Takes a client that waits out of its queue. Its place is kept until `keep_until`, if that is said.
fn leave(state: &mut State, id: BlockedId, keep_until: Option<UnixMs>) {
    let Some(&Blocked { stage: Stage::Waiting(request), .. }) = state.blocked.clients.get(id) else { return };
    state.blocked.set_stage(id, Stage::Over);
    state.room.leave(request, keep_until);
    count(&mut state.stats.cancelled);
}

/// The key was signalled by somebody else's write; locks are not handed over that way.
unsafe extern "C" fn on_signal(
    _ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    ERR
}

/// The client was unblocked, by us or by CLIENT UNBLOCK: answer it. Some servers call this inside `answer`.
unsafe extern "C" fn on_unblocked(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    guard("unblock", ERR, || {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(ctx);
        let keep_until = config::kept_until(clock::now());
        state::with(|state| leave(state, id, keep_until));
        let granted = state::with(|State { blocked, .. }| {
            let entry = blocked.clients.get_mut(id)?;
            let again = mem::replace(&mut entry.answered, true);
            (!again).then_some(matches!(entry.stage, Stage::Granted(_)))
        });
        match granted {
            // A lock that was waited for is granted with its first hold.
            Some(true) => reply::integer(ctx, 1),
            Some(false) => reply::nil(ctx),
            // Redis 7.0 and 7.2 ask once more when CLIENT UNBLOCK follows in the same loop round.
            None => {}
        }
        OK
    })
}

/// The client left the queue without a call of `on_unblocked`: it is gone, or the server has answered it itself.
unsafe extern "C" fn on_gone(ctx: *mut raw::RedisModuleCtx, _handle: *mut raw::RedisModuleBlockedClient) {
    guard("disconnect", (), || {
        // SAFETY: the server's own context for this callback.
        let ctx = unsafe { Context::new(ctx) };
        let id = private_data(ctx);
        let keep_until = config::kept_until(clock::now());
        state::with(|state| {
            leave(state, id, keep_until);
            let_go(state, id, state.blocked.is_answered(id));
        });
        alarm::set();
    });
}

/// The server lets the client go. If it has a grant and was not told of it, the lock goes on. That the client is gone
/// says so only where the answer was given to a stand-in, which hands it on after this: elsewhere it may have been sent.
unsafe extern "C" fn on_freed(ctx: *mut raw::RedisModuleCtx, private: *mut c_void) {
    guard("free", (), || {
        // SAFETY: the server's own context for this callback.
        let client_is_gone = unsafe { api!(RedisModule_BlockedClientDisconnected(ctx)) } != 0;
        let id = from_private_data(private);
        let keep_until = config::kept_until(clock::now());
        let overdue = state::with(|state| {
            leave(state, id, keep_until);
            let kept_back = client_is_gone && state.answers_by_stand_in;
            let_go(state, id, state.blocked.is_answered(id) && !kept_back);
            state.blocked.clients.remove(id);
            !state.take_backs.is_empty()
        });
        if overdue {
            alarm::set();
        }
    });
}

fn private_data(ctx: Context<'_>) -> BlockedId {
    // SAFETY: only called in callbacks of a blocked client, where the context knows its private data.
    from_private_data(unsafe { api!(RedisModule_GetBlockedClientPrivateData(ctx.raw())) })
}

/// The handle as the pointer-sized number that the server keeps for us. Never null, which the server would not free.
fn to_private_data(id: BlockedId) -> *mut c_void {
    ptr::without_provenance_mut(id.to_bits() as usize)
}

fn from_private_data(private: *mut c_void) -> BlockedId {
    Id::from_bits(private.addr() as u64)
}
