//! What happens to keys, databases, connections and the server behind the module's back.
//!
//! Nothing is written here: a write in a keyspace callback reaches replicas before the command that caused it. What
//! was heard is noted, and the pump acts on it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;

use redis_module::raw;

use super::alarm;
use super::audience;
use super::blocked;
use super::context::Context;
use super::guard::guard;
use super::pump;
use super::state;
use super::text::Text;
use crate::core::{Cause, ClientId, TakeBack};

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

/// `None` ends a subscription.
fn subscribe_to(ctx: *mut raw::RedisModuleCtx, id: u64, handler: raw::RedisModuleEventCallback) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is the server's or our own, the callback static and of the signature the API asks for.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx, event, handler)) == raw::REDISMODULE_OK as c_int }
}

/// After so many rounds of the loop without a grant the watch ends.
const IDLE_ROUNDS: u32 = 100;

/// Asks to be told when the server's loop has slept, while there are grants that may be lost until then. It costs a call
/// in each round of the loop, so it ends again when no grant comes.
pub fn watch_loop() {
    let begins = state::with(|state| state.blocked.has_unsent() && state.idle_rounds.replace(0).is_none());
    if begins {
        subscribe_to_loop(Some(on_loop));
    }
}

/// Ends what [`watch_loop`] began, if there is no need for it. Only for the timer: the server walks through its list of
/// subscriptions when it fires an event, and one must not go from under its feet.
pub fn stop_watching_loop() {
    let ends = state::with(|state| !state.blocked.has_unsent() && state.idle_rounds.take().is_some());
    if ends {
        subscribe_to_loop(None);
    }
}

fn subscribe_to_loop(handler: raw::RedisModuleEventCallback) {
    if let Some(ctx) = alarm::own_context() {
        subscribe_to(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, handler);
    }
}

unsafe extern "C" fn on_loop(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    guard("loop", (), || {
        if step == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
            let idle_rounds = state::with(|state| {
                let idle = !state.blocked.has_unsent();
                state.blocked.all_sent();
                state.idle_rounds = state.idle_rounds.map(|rounds| if idle { rounds.saturating_add(1) } else { 0 });
                state.idle_rounds
            });
            if idle_rounds == Some(IDLE_ROUNDS) {
                alarm::ring(); // Then the timer ends the watch.
            }
        }
    });
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
        let event = unsafe { CStr::from_ptr(event) };
        // A lease that ran out is no loss to a session: it takes the lock back.
        if session.is_some() && REMOVALS.contains(&event.to_bytes()) {
            state::with(|state| state.sessions.end(db, key));
        }
        if let Some(queue) = queue {
            state::with(|state| state.room.review_soon(queue, cause_of(event)));
            pump::queue(ctx);
        }
        ok
    })
}

/// The events by which a key goes, but for its expiry.
const REMOVALS: [&[u8]; 4] = [b"del", b"evicted", b"move_from", b"rename_from"];

fn cause_of(event: &CStr) -> Cause {
    match event.to_bytes() {
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
    data: *mut c_void,
) {
    guard("flush", (), || {
        if step == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            // SAFETY: with this event comes this structure, valid for this callback.
            let db = unsafe { &*data.cast::<raw::RedisModuleFlushInfo>() }.dbnum;
            lose_databases(&[(db >= 0).then_some(db)]);
        }
    });
}

/// Two databases changed places; those who wait stay with the number.
unsafe extern "C" fn on_swap(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _step: u64,
    data: *mut c_void,
) {
    guard("swap", (), || {
        // SAFETY: with this event comes this structure, valid for this callback.
        let swap = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
        lose_databases(&[Some(swap.dbnum_first), Some(swap.dbnum_second)]);
    });
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
            review_databases(&[None]);
        }
    });
}

/// The server became a master or a replica. As a replica it takes nothing back: its keys are its master's.
unsafe extern "C" fn on_role_change(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    guard("role change", (), || {
        if role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
            state::with(|state| {
                state.take_backs.clear();
                state.sessions.end_all(None);
                state.room.drop_away();
            });
        }
        review_databases(&[None]);
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
            state::with(|state| {
                let client = client.id as ClientId;
                blocked::connection_closed(state, client);
                let closed = state.sessions.connection_closed(client);
                closed.into_iter().for_each(|session| state.take_backs.add(TakeBack::of_session(session)));
            });
            alarm::set();
        }
    });
}

/// All locks of these databases (`None`: of every one) are gone, and their sessions with them.
fn lose_databases(databases: &[Option<i32>]) {
    state::with(|state| databases.iter().for_each(|db| state.sessions.end_all(*db)));
    review_databases(databases);
}

/// Looks at all locks of these databases (`None`: of every one). Not from a job behind the event: one that follows a
/// flush is replicated before it on some servers, so it is left to the timer.
fn review_databases(databases: &[Option<i32>]) {
    let concerned = state::with(|state| {
        databases.iter().for_each(|db| state.room.review_all(*db));
        !state.room.is_empty()
    });
    if concerned {
        alarm::set();
    }
}
