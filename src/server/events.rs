//! Subscriptions to what happens to keys, databases, connections and the server.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use super::context::{Context, ContextFlags};
use super::event::EventName;
use super::listeners;
use super::module::Module;
use super::panics::catch_panic;
use super::string::StringRef;
use super::subscriber_cache;
use super::timer;

/// Whether the module has subscribed to events.
static LISTENS: AtomicBool = AtomicBool::new(false);

/// Whether the module has subscribed to changes of the server's role.
static SUBSCRIBES_ROLES: AtomicBool = AtomicBool::new(false);

/// Whether the module is told of the rounds of the server's loop.
static SEES_ROUNDS: AtomicBool = AtomicBool::new(false);

/// Subscribes to the loading and unloading of other modules, and to the server's cron. Returns `false` if the server
/// refuses.
pub(super) fn subscribe_from_the_start<M: Module>(ctx: &Context<'_, M>) -> bool {
    LISTENS.store(false, Ordering::Relaxed);
    listeners::SUBSCRIBES_SORTED_SETS.store(false, Ordering::Relaxed);
    SUBSCRIBES_ROLES.store(false, Ordering::Relaxed);
    SEES_ROUNDS.store(false, Ordering::Relaxed);
    subscriber_cache::forget();
    let events: [(u64, ServerEventHandler); 2] = [
        (raw::REDISMODULE_EVENT_CRON_LOOP, on_cron::<M>),
        (raw::REDISMODULE_EVENT_MODULE_CHANGE, listeners::on_module_change::<M>),
    ];
    events.into_iter().all(|(event, handler)| subscribe_to(ctx.raw(), event, handler))
}

/// Subscribes to all other events, unless the module has done so.
///
/// From then on, each subscription costs the server something in each round of its loop, and each key event a call.
/// Most servers end the subscription to key events only when the module is unloaded.
pub fn subscribe<M: Module>() {
    if LISTENS.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(ctx) = timer::own_context() else { return };
    let events: [(u64, ServerEventHandler); 4] = [
        (raw::REDISMODULE_EVENT_FLUSHDB, on_flush::<M>),
        (raw::REDISMODULE_EVENT_SWAPDB, on_swap::<M>),
        (raw::REDISMODULE_EVENT_LOADING, on_loading::<M>),
        (raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client_change::<M>),
    ];
    // Every server that has the API knows these events.
    events.into_iter().for_each(|(event, handler)| _ = subscribe_to(ctx, event, handler));
    // SAFETY: the context is the module's own, the callback static and of the signature the API asks for.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, listeners::SUBSCRIBED, Some(on_key_event::<M>))) };
    subscribe_to_roles::<M>();
}

/// Subscribes to changes of the server's role, unless the module has done so. A replica is subscribed in any case, as of the
/// first run of its cron.
pub fn subscribe_to_roles<M: Module>() {
    if SUBSCRIBES_ROLES.load(Ordering::Relaxed) {
        return;
    }
    let Some(ctx) = timer::own_context() else { return };
    let is_told = subscribe_to(ctx, raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, on_role_change::<M>);
    SUBSCRIBES_ROLES.store(is_told, Ordering::Relaxed);
}

/// Subscribes to the events of Sorted Sets, unless the module has done so: they are costly where they are frequent.
pub fn subscribe_to_sorted_sets<M: Module>() {
    if listeners::SUBSCRIBES_SORTED_SETS.load(Ordering::Relaxed) {
        return;
    }
    let Some(ctx) = timer::own_context() else { return };
    listeners::SUBSCRIBES_SORTED_SETS.store(true, Ordering::Relaxed);
    // SAFETY: as in `subscribe`.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, listeners::SORTED_SETS, Some(on_key_event::<M>))) };
}

/// Subscribes to the rounds of the server's loop, unless the module has done so. Returns whether it is told of them.
pub(super) fn subscribe_to_rounds() -> bool {
    if !SEES_ROUNDS.load(Ordering::Relaxed) {
        let subscribe = |ctx| subscribe_to(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, on_round);
        SEES_ROUNDS.store(timer::own_context().is_some_and(subscribe), Ordering::Relaxed);
    }
    SEES_ROUNDS.load(Ordering::Relaxed)
}

/// `REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER`, which the bindings leave out.
const NOW_MASTER: u64 = 0;

type ServerEventHandler = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

fn subscribe_to(ctx: *mut raw::RedisModuleCtx, id: u64, handler: ServerEventHandler) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is the server's or the module's own, the callback static and of the signature the API asks
    // for.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx, event, Some(handler))) == raw::REDISMODULE_OK as c_int }
}

unsafe extern "C" fn on_key_event<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    let ok = raw::REDISMODULE_OK as c_int;
    catch_panic("key event", ok, || {
        if !listeners::take_own_event(key) {
            // SAFETY: context, name and key are the server's, valid for this callback.
            let (ctx, event, key) = unsafe { (Context::new(ctx), EventName::new(event), StringRef::new(key)) };
            M::key_event(&ctx, event, key);
        }
        ok
    })
}

/// Handles the flush of one or all databases. The keys in it have no events of their own.
unsafe extern "C" fn on_flush<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    catch_panic("flush", (), || {
        if step == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            M::keyspace_changed();
        }
    });
}

/// Handles the swap of two databases.
unsafe extern "C" fn on_swap<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _step: u64,
    _data: *mut c_void,
) {
    catch_panic("swap", (), M::keyspace_changed);
}

/// Handles the reload of the keyspace.
unsafe extern "C" fn on_loading<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    catch_panic("loading", (), || {
        if [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED].contains(&step) {
            M::keyspace_changed();
        }
    });
}

/// Handles the end of a round, before the loop sleeps and answers leave, and the beginning of the next.
unsafe extern "C" fn on_round(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _step: u64,
    _data: *mut c_void,
) {
    catch_panic("round", (), subscriber_cache::forget);
}

unsafe extern "C" fn on_cron<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _step: u64,
    data: *mut c_void,
) {
    catch_panic("cron", (), || {
        // SAFETY: the server's own context for this callback.
        if unsafe { Context::<M>::new(ctx) }.flags().contains(ContextFlags::REPLICA) {
            subscribe_to_roles::<M>();
        }
        // SAFETY: with this event comes this structure, valid for this callback.
        let cron = unsafe { &*data.cast::<raw::RedisModuleCronLoopInfo>() };
        M::cron(1000_i64.checked_div(cron.hz.into()).unwrap_or_default());
        timer::catch_up::<M>();
    });
}

unsafe extern "C" fn on_role_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    catch_panic("role change", (), || M::role_changed(role == NOW_MASTER));
}

unsafe extern "C" fn on_client_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    change: u64,
    data: *mut c_void,
) {
    catch_panic("client change", (), || {
        if change == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
            // SAFETY: with this event comes this structure, valid for this callback.
            let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
            M::client_closed(client.id as super::ClientId);
        }
    });
}
