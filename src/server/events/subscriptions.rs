//! Subscriptions to events of keys, databases, connections and the server.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use redis_module::raw;

use super::EventName;
use super::own_writes::{self, KEY_CLASSES, SORTED_SET_CLASS};
use crate::server::ClientId;
use crate::server::api::OK;
use crate::server::context::{Context, ContextFlags};
use crate::server::module::Module;
use crate::server::panics::catch_panic;
use crate::server::state::{own_context, state};
use crate::server::string::StringRef;
use crate::server::timer;

/// `REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER`, which the bindings leave out.
const NOW_MASTER: u64 = 0;

/// `REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA`.
const NOW_REPLICA: u64 = 1;

type ServerEventHandler = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// Subscribes to the loading and unloading of other modules, and to the server's cron. Returns `false` if the server
/// refuses.
pub(in crate::server) fn subscribe_at_load<M: Module>(ctx: &Context<'_, M>) -> bool {
    let events: [(u64, ServerEventHandler); 2] = [
        (raw::REDISMODULE_EVENT_CRON_LOOP, on_cron::<M>),
        (raw::REDISMODULE_EVENT_MODULE_CHANGE, own_writes::on_module_change::<M>),
    ];
    events.into_iter().all(|(event, handler)| subscribe_to(ctx.raw(), event, handler))
}

/// Subscribes to key events, to changes of whole databases, to closed connections, and to changes of the server's role, unless
/// the module has done so. Has no effect while the module is being loaded.
///
/// After this, each subscription costs the server time in each event-loop iteration, and each key event costs a call. Most
/// servers end the subscription to key events only when the module is unloaded.
pub fn subscribe<M: Module>() {
    once(&state().hears_events, |ctx| {
        let events: [(u64, ServerEventHandler); 4] = [
            (raw::REDISMODULE_EVENT_FLUSHDB, on_flush::<M>),
            (raw::REDISMODULE_EVENT_SWAPDB, on_swap::<M>),
            (raw::REDISMODULE_EVENT_LOADING, on_loading::<M>),
            (raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client_change::<M>),
        ];
        for (event, handler) in events {
            let is_subscribed = subscribe_to(ctx, event, handler);
            debug_assert!(is_subscribed, "the server does not know the event {event}");
        }
        subscribe_to_keys::<M>(ctx, KEY_CLASSES);
        subscribe_to_roles::<M>();
        true
    });
}

/// Subscribes to changes of the server's role, unless the module has done so. Has no effect while the module is being loaded. A
/// replica subscribes in any case, when its cron runs for the first time.
pub fn subscribe_to_roles<M: Module>() {
    let event = raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED;
    once(&state().hears_roles, |ctx| subscribe_to(ctx, event, on_role_change::<M>));
}

/// Subscribes to the events of Sorted Sets, unless the module has done so. They cost much where they are frequent. Has no effect
/// while the module is being loaded.
pub fn subscribe_to_sorted_sets<M: Module>() {
    once(&state().hears_sorted_sets, |ctx| {
        subscribe_to_keys::<M>(ctx, SORTED_SET_CLASS);
        true
    });
}

/// Subscribes to the iterations of the event loop, unless the module has done so. Returns whether the module is subscribed.
pub(in crate::server) fn subscribe_to_iterations() -> bool {
    once(&state().hears_iterations, |ctx| subscribe_to(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, on_iteration))
}

/// Runs `subscribe`, which returns whether the server has accepted, until it has once. Has no effect while the module is being
/// loaded. Returns whether the module is subscribed.
fn once(is_subscribed: &Cell<bool>, subscribe: impl FnOnce(*mut raw::RedisModuleCtx) -> bool) -> bool {
    if is_subscribed.get() {
        return true;
    }
    let Some(ctx) = own_context() else { return false };
    // Before: after a panic in between, a second subscription would bring each key event twice.
    is_subscribed.set(true);
    is_subscribed.set(subscribe(ctx));
    is_subscribed.get()
}

fn subscribe_to(ctx: *mut raw::RedisModuleCtx, id: u64, handler: ServerEventHandler) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is the server's or the module's own, the callback static and of the signature that the API asks
    // for.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx, event, Some(handler))) == OK }
}

fn subscribe_to_keys<M: Module>(ctx: *mut raw::RedisModuleCtx, classes: c_int) {
    // SAFETY: the context is the module's own, the callback static and of the signature that the API asks for.
    let result = unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, classes, Some(on_key_event::<M>))) };
    debug_assert_eq!(result, OK, "the server refuses key events");
}

unsafe extern "C" fn on_key_event<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    catch_panic("key event", OK, || {
        if !own_writes::take_own_event(key) {
            // SAFETY: context, name and key are the server's, valid for this callback.
            let (ctx, event, key) = unsafe { (Context::new(ctx), EventName::new(event), StringRef::new(key)) };
            M::key_event(&ctx, event, key);
        }
        OK
    })
}

/// Handles the flush of one or all databases. The keys in it have no events of their own.
unsafe extern "C" fn on_flush<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_FLUSHDB);
    debug_assert!(step <= raw::REDISMODULE_SUBEVENT_FLUSHDB_END, "unknown step: {step}");
    catch_panic("flush", (), || {
        if step == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
            M::keyspace_changed();
        }
    });
}

/// Handles the swap of two databases.
unsafe extern "C" fn on_swap<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    _step: u64,
    _data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_SWAPDB);
    catch_panic("swap", (), M::keyspace_changed);
}

/// Handles the reload of the keyspace.
unsafe extern "C" fn on_loading<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_LOADING);
    debug_assert!(step <= raw::REDISMODULE_SUBEVENT_LOADING_FAILED, "unknown step: {step}");
    catch_panic("loading", (), || {
        if [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED].contains(&step) {
            M::keyspace_changed();
        }
    });
}

/// Handles the end of an event-loop iteration, before the loop sleeps and replies are sent, and the beginning of the next one. A
/// client may have unsubscribed in between.
unsafe extern "C" fn on_iteration(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    step: u64,
    _data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_EVENTLOOP);
    debug_assert!(step <= raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP, "unknown step: {step}");
    catch_panic("round", (), || state().subscribed_channel.borrow_mut().clear());
}

unsafe extern "C" fn on_cron<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    _step: u64,
    data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_CRON_LOOP);
    debug_assert!(!data.is_null(), "an event without its structure");
    catch_panic("cron", (), || {
        // SAFETY: the server's own context for this callback.
        if unsafe { Context::<M>::new(ctx) }.flags().contains(ContextFlags::REPLICA) {
            subscribe_to_roles::<M>();
        }
        // SAFETY: this event comes with this structure, valid for this callback.
        let cron = unsafe { &*data.cast::<raw::RedisModuleCronLoopInfo>() };
        debug_assert!((1..=500).contains(&cron.hz), "hz is {}", cron.hz);
        M::cron(1000_i64.checked_div(cron.hz.into()).unwrap_or_default()); // `hz` is not 0.
        timer::catch_up::<M>();
    });
}

unsafe extern "C" fn on_role_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    role: u64,
    _data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED);
    debug_assert!(role <= NOW_REPLICA, "unknown step: {role}");
    catch_panic("role change", (), || M::role_changed(role == NOW_MASTER));
}

unsafe extern "C" fn on_client_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    change: u64,
    data: *mut c_void,
) {
    debug_assert_eq!(event.id, raw::REDISMODULE_EVENT_CLIENT_CHANGE);
    debug_assert!(change <= raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED, "unknown step: {change}");
    debug_assert!(!data.is_null(), "an event without its structure");
    catch_panic("client change", (), || {
        if change == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
            // SAFETY: this event comes with this structure, valid for this callback.
            let client = unsafe { &*data.cast::<raw::RedisModuleClientInfo>() };
            M::client_closed(client.id as ClientId);
        }
    });
}
