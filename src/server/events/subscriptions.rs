//! Subscriptions to events of keys, databases, connections and the server.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};

use redis_module::raw;

use super::own_writes::{self, KEY_CLASSES, SORTED_SET_CLASS};
use crate::server::ClientId;
use crate::server::api::OK;
use crate::server::context::{Context, ContextFlags};
use crate::server::module::Module;
use crate::server::panics::catch_panic;
use crate::server::state::state;
use crate::server::string::StringRef;
use crate::server::timer;

type ServerEventHandler = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// Subscribes to the loading and unloading of other modules, and to the server's cron. Returns `false` if the server refuses.
pub(in crate::server) fn subscribe_at_load<M: Module>(ctx: &Context<'_, M>) -> bool {
    let events = [raw::REDISMODULE_EVENT_CRON_LOOP, raw::REDISMODULE_EVENT_MODULE_CHANGE];
    events.into_iter().all(|event| subscribe_to(ctx, event, on_server_event::<M>))
}

/// Subscribes to key events, to changes of whole databases, to closed connections, and to changes of the server's role, unless
/// the module has done so. Has no effect while the module is being loaded.
///
/// After this, each subscription costs the server time in each event-loop iteration, and each key event costs a call. Most
/// servers end the subscription to key events only when the module is unloaded.
pub fn subscribe<M: Module>() {
    once(&state().hears_events, |ctx| {
        for event in [
            raw::REDISMODULE_EVENT_FLUSHDB,
            raw::REDISMODULE_EVENT_SWAPDB,
            raw::REDISMODULE_EVENT_LOADING,
            raw::REDISMODULE_EVENT_CLIENT_CHANGE,
        ] {
            let is_subscribed = subscribe_to(ctx, event, on_server_event::<M>);
            debug_assert!(is_subscribed, "the server does not know the event {event}");
        }
        subscribe_to_roles::<M>();
        subscribe_to_keys::<M>(ctx, KEY_CLASSES)
    });
}

/// Subscribes to changes of the server's role, unless the module has done so. Has no effect while the module is being loaded. A
/// replica subscribes in any case, when its cron runs for the first time.
pub fn subscribe_to_roles<M: Module>() {
    let event = raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED;
    once(&state().hears_roles, |ctx| subscribe_to(ctx, event, on_server_event::<M>));
}

/// Subscribes to the events of Sorted Sets, unless the module has done so. They cost much where they are frequent. Has no effect
/// while the module is being loaded.
pub fn subscribe_to_sorted_sets<M: Module>() {
    once(&state().hears_sorted_sets, |ctx| subscribe_to_keys::<M>(ctx, SORTED_SET_CLASS));
}

/// Subscribes to the iterations of the event loop, unless the module has done so. Returns whether the module is subscribed.
pub(in crate::server) fn subscribe_to_iterations() -> bool {
    once(&state().hears_iterations, |ctx| subscribe_to(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, on_iteration))
}

/// Runs `subscribe`, which returns whether the server has accepted, until it has once. Has no effect while the module is being
/// loaded. Returns whether the module is subscribed.
fn once(is_subscribed: &Cell<bool>, subscribe: impl FnOnce(&Context<'_, ()>) -> bool) -> bool {
    if is_subscribed.get() {
        return true;
    }
    let Some(ctx) = Context::own() else { return false };
    // Before: after a panic in between, a second subscription would bring each key event twice.
    is_subscribed.set(true);
    is_subscribed.set(subscribe(&ctx));
    is_subscribed.get()
}

fn subscribe_to<M>(ctx: &Context<'_, M>, id: u64, handler: ServerEventHandler) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is valid, the callback static and of the signature that the API asks for.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw(), event, Some(handler))) == OK }
}

fn subscribe_to_keys<M: Module>(ctx: &Context<'_, ()>, classes: c_int) -> bool {
    // SAFETY: as in `subscribe_to`.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx.raw(), classes, Some(on_key_event::<M>))) == OK }
}

unsafe extern "C" fn on_key_event<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    catch_panic("key event", OK, |_| {
        if !own_writes::take_own_event(key) {
            // SAFETY: context, name and key are the server's, valid for this callback.
            let (ctx, event, key) = unsafe { (Context::new(ctx), CStr::from_ptr(event), StringRef::new(key)) };
            M::key_event(&ctx, event.to_bytes(), key);
        }
        OK
    })
}

/// Handles the end of an event-loop iteration, before the loop sleeps and replies are sent, and the beginning of the next one. A
/// client may have unsubscribed in between.
unsafe extern "C" fn on_iteration(_: *mut raw::RedisModuleCtx, _: raw::RedisModuleEvent, _step: u64, _: *mut c_void) {
    catch_panic("round", (), |_| state().subscribed_channel.borrow_mut().clear());
}

/// Handles any other event of the server.
unsafe extern "C" fn on_server_event<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    step: u64,
    data: *mut c_void,
) {
    match event.id {
        // The keys of a database that is flushed have no events of their own.
        raw::REDISMODULE_EVENT_FLUSHDB => catch_panic("flush", (), |server| {
            if step == raw::REDISMODULE_SUBEVENT_FLUSHDB_END {
                M::keyspace_changed(server);
            }
        }),
        raw::REDISMODULE_EVENT_SWAPDB => catch_panic("swap", (), M::keyspace_changed),
        raw::REDISMODULE_EVENT_LOADING => catch_panic("loading", (), |server| {
            if [raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED].contains(&step) {
                M::keyspace_changed(server);
            }
        }),
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => catch_panic("role change", (), |server| {
            M::role_changed(server, step == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER);
        }),
        raw::REDISMODULE_EVENT_CLIENT_CHANGE => catch_panic("client change", (), |server| {
            if step == raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
                // SAFETY: this event comes with this structure, valid for this callback.
                M::client_closed(server, unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id } as ClientId);
            }
        }),
        raw::REDISMODULE_EVENT_CRON_LOOP => catch_panic("cron", (), |server| {
            // SAFETY: the server's own context for this callback.
            if unsafe { Context::<M>::new(ctx) }.flags().contains(ContextFlags::REPLICA) {
                subscribe_to_roles::<M>();
            }
            // SAFETY: this event comes with this structure, valid for this callback.
            let hz = unsafe { (*data.cast::<raw::RedisModuleCronLoopInfo>()).hz };
            M::cron(server, 1000_i64.checked_div(hz.into()).unwrap_or_default()); // `hz` is not 0.
            timer::iteration_begins::<M>(false);
        }),
        raw::REDISMODULE_EVENT_MODULE_CHANGE => {
            let is_known = catch_panic("module change", false, |_| {
                // SAFETY: this event comes with this structure, and in it a C string, valid for this callback.
                let name = unsafe { CStr::from_ptr((*data.cast::<raw::RedisModuleModuleChange>()).module_name) };
                own_writes::add_module::<M>(name.to_bytes());
                true
            });
            if !is_known {
                catch_panic("unknown module", (), |_| state().has_other_modules.set(true));
            }
        }
        id => debug_assert!(false, "the module has not subscribed to the event {id}"),
    }
}
