//! What happens to keys, databases, connections and the server behind the module's back.
//!
//! Nothing is written here: a write in a keyspace callback reaches replicas before the command that caused it. What
//! was heard is noted, and the pump acts on it, no later than in the next round of the loop.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::rc::Rc;

use redis_module::raw;

use super::alarm;
use super::audience;
use super::clock;
use super::context::Context;
use super::guard::guard;
use super::state::{self, State};
use super::text::Text;
use crate::core::{Cause, ClientId, SessionId, Sessions, UnixMs};

/// The classes of key events that can free a lock or move its lease. The other classes bring new values, and a key with
/// a value is not free.
const CLASSES: c_int =
    raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;

/// Begins to listen to other modules' coming and going. `false`: the server does not let us.
pub fn subscribe(ctx: Context<'_>) -> bool {
    subscribe_to(ctx.raw(), raw::REDISMODULE_EVENT_MODULE_CHANGE, Some(audience::on_module_change))
}

/// Begins to listen to everything else, if we do not yet: with the first who waits and the first session. From then on
/// each subscription costs the server something in each round of its loop, and each event of any key a call. Most servers
/// end that of keys only when the module is unloaded.
pub fn listen() {
    if state::with(|state| mem::replace(&mut state.listens, true)) {
        return;
    }
    let Some(ctx) = alarm::own_context() else { return };
    let events: [(u64, ServerEventHandler); 5] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, on_flush),
        (raw::REDISMODULE_EVENT_SWAPDB, on_swap),
        (raw::REDISMODULE_EVENT_LOADING, on_loading),
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role_change),
        (raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client_change),
    ];
    // Every server that has the API knows these events.
    events.into_iter().for_each(|(event, handler)| _ = subscribe_to(ctx, event, Some(handler)));
    // SAFETY: the context is our own, the callback static and of the signature the API asks for.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, CLASSES, Some(on_key_event))) };
}

fn subscribe_to(ctx: *mut raw::RedisModuleCtx, id: u64, handler: raw::RedisModuleEventCallback) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is the server's or our own, the callback static and of the signature the API asks for.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx, event, handler)) == raw::REDISMODULE_OK as c_int }
}

type ServerEventHandler = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

unsafe extern "C" fn on_key_event(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    let ok = raw::REDISMODULE_OK as c_int;
    guard("key event", ok, || {
        // The common case first: nothing to do with us, or our own doing.
        if state::with(|state| state.is_idle() || state.take_own_event(key)) {
            return ok;
        }
        // SAFETY: context and key are the server's, valid for this callback.
        let (ctx, key) = unsafe { (Context::new(ctx), Text::new(key)) };
        let (db, key) = (ctx.db(), key.bytes());
        let (queue, session) = state::with(|state| (state.room.queue_of(db, key), state.sessions.of(db, key)));
        if queue.is_none() && session.is_none() {
            return ok; // As most keys, it is no lock that we know.
        }
        // SAFETY: the name is the server's, valid for this callback.
        let event = unsafe { CStr::from_ptr(event) }.to_bytes();
        let now = clock::now();
        state::with(|state| {
            if let Some(session) = session {
                tell_session(&mut state.sessions, session, event, now);
            }
            if let Some(queue) = queue {
                state.room.review_soon(queue, cause_of(event));
            }
        });
        alarm::set();
        ok
    })
}

/// What an event of its key means to a session. A lease that ran out is no loss: it takes the lock back.
fn tell_session(sessions: &mut Sessions, id: SessionId, event: &[u8], now: UnixMs) {
    let Some(session) = sessions.get(id) else { return };
    // Valkey also says so of a lease that a command has set into the past.
    let ran_out = event == b"expired" && session.has_lapsed(now);
    if ran_out || LEASE_CHANGES.contains(&event) {
        sessions.lease_was_changed(id);
    } else if event == b"expired" || REPLACEMENTS.contains(&event) {
        let (db, key) = (session.db, Rc::clone(&session.key));
        sessions.end(db, &key);
    }
}

/// The events by which somebody else's command sets or takes away a lease.
const LEASE_CHANGES: [&[u8]; 2] = [b"expire", b"persist"];

/// The events by which a key goes, but for its expiry, or another one comes in its place.
const REPLACEMENTS: [&[u8]; 8] =
    [b"del", b"evicted", b"move_from", b"rename_from", b"move_to", b"rename_to", b"copy_to", b"restore"];

fn cause_of(event: &[u8]) -> Cause {
    match event {
        b"expired" => Cause::Expiry,
        b"del" => Cause::Delete,
        _ => Cause::Other,
    }
}

/// A database was emptied, or all of them. Keys that go this way have no events of their own.
unsafe extern "C" fn on_flush(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    guard("flush", (), || {
        if step == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            look_at_all();
        }
    });
}

/// Two databases changed places; those who wait, and sessions, stay with the number.
unsafe extern "C" fn on_swap(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _step: u64,
    _data: *mut c_void,
) {
    guard("swap", (), look_at_all);
}

/// The keyspace was loaded anew.
unsafe extern "C" fn on_loading(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    guard("loading", (), || {
        if [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED].contains(&step) {
            look_at_all();
        }
    });
}

/// The server became a master or a replica.
unsafe extern "C" fn on_role_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _role: u64,
    _data: *mut c_void,
) {
    guard("role change", (), || {
        state::with(State::retire);
        look_at_all();
    });
}

unsafe extern "C" fn on_client_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    change: u64,
    data: *mut c_void,
) {
    guard("client change", (), || {
        if change == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
            // SAFETY: with this event comes this structure, valid for this callback.
            let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
            state::with(|state| state.sessions.connection_closed(client.id as ClientId));
            alarm::set();
        }
    });
}

/// Any lock may have changed: looks at each, in the server's timer, as many at a stretch as the pump does.
fn look_at_all() {
    state::with(|state| {
        state.sessions.look_at_all();
        state.room.review_all();
    });
    alarm::set();
}
