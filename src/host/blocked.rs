//! Clients that the server has blocked for us.
//!
//! They are blocked **on keys**, without a time-out of the server's: only that form answers a client whose time is up
//! in the very loop round in which it is unblocked (Redis 7.0 and 7.2 lose the reply or crash otherwise), knows its
//! private data in every callback, and is told -MOVED by the server itself. The key is never signalled by us; a client
//! is answered by setting its stage and unblocking it, whereupon the server asks `on_unblocked` for the reply.
//!
//! The server calls, depending on its version: `on_unblocked` inside or after our call, `on_gone` instead of it when
//! the client leaves otherwise, and `on_freed` exactly once at the end.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

use redis_module::raw;

use super::alarm;
use super::config;
use super::context::Context;
use super::guard::guard;
use super::reply;
use super::state::{self, State};
use super::text::Text;
use crate::command::{ClientId, Wait};
use crate::core::{Arena, Claim, ConnectionId, Id, Kind, Refusal, RequestId, UnixMs, count};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Every client the server has blocked for us and not yet let go.
pub struct BlockedClients {
    clients: Arena<Blocked>,
    by_id: BTreeMap<ClientId, BlockedId>,
}

type BlockedId = Id<Blocked>;

struct Blocked {
    handle: *mut raw::RedisModuleBlockedClient,
    client: ClientId,
    stage: Stage,
}

/// How far a blocked client has come.
pub enum Stage {
    Waiting(RequestId),
    /// The lock is written in its name; the answer is on its way.
    Granted(Granting),
    /// Its time is up, or it has left.
    Over,
}

/// A grant that may still turn out to be undeliverable.
pub struct Granting {
    pub db: i32,
    pub key: Rc<[u8]>,
    pub kind: Kind,
    pub owner: Box<[u8]>,
}

/// A grant whose client was gone before the answer was, and when to take it back.
pub struct Undelivered {
    pub granting: Granting,
    pub due: UnixMs,
}

impl BlockedClients {
    pub const fn new() -> Self {
        Self { clients: Arena::new(), by_id: BTreeMap::new() }
    }

    /// The server's number for a connection that waits.
    pub fn client_id(&self, connection: ConnectionId) -> ClientId {
        self.clients.get(Id::from_bits(connection.0)).map_or(-1, |blocked| blocked.client)
    }
}

/// Where in the keyspace a request wants a lock, and as whom.
pub struct Target<'c> {
    pub db: i32,
    pub key: Text<'c>,
    pub caller: &'c [u8],
}

/// Lets the client of this command wait in line. The caller then answers nothing.
pub fn wait(ctx: Context<'_>, target: &Target<'_>, wait: Wait, now: UnixMs) -> Result<(), Refusal> {
    let client = ctx.client_id();
    let deadline = wait.patience.deadline(now, config::MAX_BLOCK_MS.get());
    let claim = Claim { kind: wait.kind, owner: target.caller.into(), lease: wait.lease };
    let limit = usize::try_from(config::MAX_WAITERS.get()).unwrap_or(usize::MAX);
    let (id, request) = state::with(|State { room, blocked, .. }| {
        if room.waiting() >= limit {
            return None;
        }
        let id = blocked.clients.insert(Blocked { handle: ptr::null_mut(), client, stage: Stage::Over })?;
        let place = (target.db, target.key.bytes());
        let request = room.join(place, claim, ConnectionId(id.to_bits()), now, deadline)?;
        Some((id, request))
    })
    .ok_or(Refusal::QueueFull)?;

    let handle = block(ctx, target.key, id);
    state::with(|State { room, blocked, .. }| {
        if handle.is_null() {
            room.leave(request);
            blocked.clients.remove(id);
            return Err(Refusal::QueueFull);
        }
        if let Some(entry) = blocked.clients.get_mut(id) {
            entry.handle = handle;
            entry.stage = Stage::Waiting(request);
        }
        blocked.by_id.insert(client, id);
        Ok(())
    })
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

/// Ends the wait of a connection that is in no queue any more: the server fetches the reply that belongs to `stage`.
/// To be called last, after all effects of the command: the server may call back at once.
pub fn answer(connection: ConnectionId, stage: Stage) {
    let handle = state::with(|state| {
        let entry = state.blocked.clients.get_mut(Id::from_bits(connection.0))?;
        entry.stage = stage;
        Some(entry.handle)
    });
    if let Some(handle) = handle {
        // SAFETY: the entry exists, so the server has not freed the blocked client; the server ignores a second call.
        unsafe { api!(RedisModule_UnblockClient(handle, ptr::null_mut())) };
    }
}

/// A connection is closed. If it was granted a lock in this very loop round, its answer will never be sent, and not
/// every server says so to `on_gone`. Answers whether that is so.
pub fn connection_closed(client: ClientId) -> bool {
    state::with(|state| match state.blocked.by_id.get(&client) {
        Some(&id) => give_up_grant(state, id),
        None => false,
    })
}

/// Puts the grant of a client that will not get its answer, if there is one, on the list of those to be taken back.
fn give_up_grant(state: &mut State, id: BlockedId) -> bool {
    let Some(entry) = state.blocked.clients.get_mut(id) else { return false };
    match std::mem::replace(&mut entry.stage, Stage::Over) {
        Stage::Granted(granting) => state.undelivered.push(Undelivered { granting, due: UnixMs::MIN }),
        stage => {
            entry.stage = stage;
            return false;
        }
    }
    true
}

/// Takes a client that waits out of its queue.
fn leave(state: &mut State, id: BlockedId) {
    let Some(entry) = state.blocked.clients.get_mut(id) else { return };
    if let Stage::Waiting(request) = entry.stage {
        entry.stage = Stage::Over;
        state.room.leave(request);
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
        let granted = state::with(|state| {
            leave(state, id);
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
        state::with(|state| {
            leave(state, id);
            give_up_grant(state, id);
        });
        alarm::set();
    });
}

/// The server lets the client go.
unsafe extern "C" fn on_freed(_ctx: *mut raw::RedisModuleCtx, private: *mut c_void) {
    guard("free", (), || {
        let id = from_private_data(private);
        state::with(|State { blocked, .. }| {
            if let Some(entry) = blocked.clients.remove(id) {
                blocked.by_id.remove(&entry.client);
            }
        });
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
