//! Clients that the server has blocked for us.
//!
//! They are blocked **on keys**, without a time-out of the server's: only that form answers a client whose time is up
//! in the very loop round in which it is unblocked (Redis 7.0 and 7.2 lose the reply or crash otherwise), knows its
//! private data in every callback, and is told -MOVED by the server itself. The key is never signalled by us; a client
//! is answered by setting its stage and unblocking it, whereupon the server asks `on_unblocked` for the reply.
//!
//! The server calls, depending on its version: `on_unblocked` inside or after our call, `on_gone` instead of it when
//! the client leaves otherwise, and `on_freed` exactly once at the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

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
    Arena, Begin, Claim, ClientId, ConnectionId, Grant, Id, Join, Lease, Refusal, RequestId, TakeBack, UnixMs, count,
};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Every client the server has blocked for us and not yet let go.
pub struct BlockedClients {
    clients: Arena<Blocked>,
    /// Those of them that have a grant: to the others it makes no difference that their connection closes.
    granted: BTreeMap<ClientId, BlockedId>,
    /// Grants whose answer is in the client's buffer but cannot have left the server before its loop sleeps again.
    unsent: BTreeMap<ClientId, Rc<Granting>>,
}

type BlockedId = Id<Blocked>;

struct Blocked {
    handle: *mut raw::RedisModuleBlockedClient,
    client: ClientId,
    /// The lease to renew, if the lock shall belong to the connection.
    session: Option<Lease>,
    stage: Stage,
}

/// How far a blocked client has come.
pub enum Stage {
    Waiting(RequestId),
    /// The lock is written in its name; the answer is on its way.
    Granted(Rc<Granting>),
    /// Its time is up, or it has left.
    Over,
}

/// A grant that may still turn out to be undeliverable.
pub struct Granting {
    grant: Grant,
    /// How many of the connections that share it are not known to be gone.
    reachable: Cell<usize>,
}

impl BlockedClients {
    pub const fn new() -> Self {
        Self { clients: Arena::new(), granted: BTreeMap::new(), unsent: BTreeMap::new() }
    }

    /// Whether there are grants that may still be lost with their connection.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The server's loop has slept: every answer is on its way.
    pub fn all_sent(&mut self) {
        self.unsent.clear();
    }

    /// The server's number for a connection that waits.
    pub fn client_id(&self, connection: ConnectionId) -> ClientId {
        self.clients.get(Id::from_bits(connection.0)).map_or(-1, |blocked| blocked.client)
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
        let entry = Blocked { handle: ptr::null_mut(), client, session, stage: Stage::Over };
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
            entry.stage = Stage::Waiting(joined.request);
        }
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

/// Tells every connection of a grant that the lock is theirs, and makes those its session that asked for it. To be
/// called last, after all effects of the command.
pub fn answer_grant(mut grant: Grant, now: UnixMs) {
    let connections = std::mem::take(&mut grant.connections);
    state::with(|state| connections.iter().for_each(|connection| begin_session(state, &grant, *connection, now)));
    let granting = Rc::new(Granting { grant, reachable: Cell::new(connections.len()) });
    for connection in connections {
        answer(connection, Stage::Granted(Rc::clone(&granting)));
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
    let handle = state::with(|State { blocked: BlockedClients { clients, granted, .. }, .. }| {
        let entry = clients.get_mut(id)?;
        if matches!(stage, Stage::Granted(_)) {
            granted.insert(entry.client, id);
        }
        entry.stage = stage;
        Some(entry.handle)
    });
    if let Some(handle) = handle {
        // SAFETY: the entry exists, so the server has not freed the blocked client; the server ignores a second call.
        unsafe { api!(RedisModule_UnblockClient(handle, ptr::null_mut())) };
    }
}

/// A connection is closed. If it was granted a lock in this very loop round, its answer will never be sent, and not
/// every server says so to `on_gone`.
pub fn connection_closed(state: &mut State, client: ClientId) {
    if let Some(&id) = state.blocked.granted.get(&client) {
        give_up_grant(state, id);
    }
    if let Some(granting) = state.blocked.unsent.remove(&client) {
        granting.give_up(state);
    }
}

/// Notes that a client will not get the answer to its grant, if there is one.
fn give_up_grant(state: &mut State, id: BlockedId) {
    let Some(entry) = state.blocked.clients.get_mut(id) else { return };
    match std::mem::replace(&mut entry.stage, Stage::Over) {
        Stage::Granted(granting) => granting.give_up(state),
        stage => entry.stage = stage,
    }
}

impl Granting {
    /// One connection less. If none is left that hears of the grant, it is to be taken back.
    fn give_up(&self, state: &mut State) {
        let reachable = self.reachable.get().saturating_sub(1);
        self.reachable.set(reachable);
        if reachable == 0 {
            state.take_backs.add(TakeBack::of_grant(self.grant.clone()));
        }
    }
}

/// Takes a client that waits out of its queue. Its place is kept until `keep_until`, if that is said.
fn leave(state: &mut State, id: BlockedId, keep_until: Option<UnixMs>) {
    let Some(entry) = state.blocked.clients.get_mut(id) else { return };
    if let Stage::Waiting(request) = entry.stage {
        entry.stage = Stage::Over;
        state.room.leave(request, keep_until);
        count(&mut state.stats.cancelled);
    }
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
        let granted = state::with(|state| {
            leave(state, id, keep_until);
            state.blocked.clients.get(id).is_some_and(|entry| matches!(entry.stage, Stage::Granted(_)))
        });
        // A lock that was waited for is granted with its first hold.
        if granted {
            reply::integer(ctx, 1)
        } else {
            reply::nil(ctx)
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
            give_up_grant(state, id);
        });
        alarm::set();
    });
}

/// The server lets the client go. With a grant in hand and the client gone, the answer was dropped; on Valkey nothing
/// else tells that a CLIENT UNBLOCK with ERROR came between grant and answer. Otherwise the answer waits to be sent.
unsafe extern "C" fn on_freed(ctx: *mut raw::RedisModuleCtx, private: *mut c_void) {
    guard("free", (), || {
        // SAFETY: the server's own context for this callback.
        let client_is_gone = unsafe { api!(RedisModule_BlockedClientDisconnected(ctx)) } != 0;
        let id = from_private_data(private);
        let keep_until = config::kept_until(clock::now());
        state::with(|state| {
            leave(state, id, keep_until);
            if client_is_gone {
                give_up_grant(state, id);
            }
            let BlockedClients { clients, granted, unsent } = &mut state.blocked;
            let Some(entry) = clients.remove(id) else { return };
            // The client may have its next grant already: its next command can run before this.
            if granted.get(&entry.client) == Some(&id) {
                granted.remove(&entry.client);
            }
            if let Stage::Granted(granting) = entry.stage {
                unsent.insert(entry.client, granting);
            }
        });
        if client_is_gone {
            alarm::set();
        } else {
            events::watch_loop();
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
