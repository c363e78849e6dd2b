//! The listeners to the module's own writes.
//!
//! Native writes cause no keyspace events and do not touch watched keys, so both are done here. An event without
//! listeners is not caused: it would cost the server a call, and come back to the module, which knows already.
//! Listeners are clients, according to `notify-keyspace-events`, and other modules. The server does not show what
//! modules listen to, so any other module counts as a listener.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ptr, slice};

use redis_module::raw;

use super::context::Context;
use super::event::Event;
use super::key::Key;
use super::main_thread::MainThread;
use super::module::Module;
use super::panics::catch_panic;

/// The classes of key events that a module subscribes to: those by which a key is deleted or its expiry time changes.
/// The other classes bring new values.
pub(super) const SUBSCRIBED: c_int =
    raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;

/// The class that a module may subscribe to later: events by which members of Sorted Sets come and go.
pub(super) const SORTED_SETS: c_int = raw::REDISMODULE_NOTIFY_ZSET as c_int;

/// Whether the module has subscribed to it.
pub(super) static SUBSCRIBES_SORTED_SETS: AtomicBool = AtomicBool::new(false);

/// Modules that are part of a server (Redis 8, Valkey 9) and do not listen to keys.
const BUNDLED: [&[u8]; 2] = [b"vectorset", b"lua"];

static LISTENERS: MainThread<Listeners> = MainThread::new(Listeners::NONE);

struct Listeners {
    /// Whether there is, or was, another module that may listen to key events.
    other_modules: bool,
    /// The name of the key whose next event the module causes itself, as the server's string; or null.
    own_event: *const raw::RedisModuleString,
}

impl Listeners {
    const NONE: Self = Self { other_modules: false, own_event: ptr::null() };
}

impl<M> Key<'_, '_, M> {
    /// Reports a change of the key to WATCH and client-side caches, and `events` to listeners.
    ///
    /// The key must not have expired: Redis 8.6 would delete it under the open handle.
    #[inline(always)]
    pub fn signal(&mut self, events: &[Event]) {
        // SAFETY: context and name are valid while the key is open.
        unsafe { api!(RedisModule_SignalModifiedKey(self.ctx().raw(), self.name().raw())) };
        let subscriber_cache = observed_classes();
        if subscriber_cache != 0 {
            events.iter().filter(|Event(class, _)| class & subscriber_cache != 0).for_each(|event| self.notify(*event));
        }
    }

    fn notify(&mut self, Event(class, name): Event) {
        let key = self.name().raw();
        // The event also reaches the module's own handler, if it subscribes to the class, and would pass for a foreign
        // one.
        let comes_back =
            class & SUBSCRIBED != 0 || class & SORTED_SETS != 0 && SUBSCRIBES_SORTED_SETS.load(Ordering::Relaxed);
        LISTENERS.with(|listeners| listeners.own_event = if comes_back { key } else { ptr::null_mut() });
        // SAFETY: as in `signal`; the name of the event is a static C string.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.ctx().raw(), class, name.as_ptr(), key)) };
        LISTENERS.with(|listeners| listeners.own_event = ptr::null());
        self.known().forget(); // Another module may have heard of it, and written the key.
    }
}

/// Returns whether this event of `key` is the one that the module is causing itself. If so, it is not expected any
/// more.
#[inline]
pub(super) fn take_own_event(key: *const raw::RedisModuleString) -> bool {
    LISTENERS.with(|listeners| {
        let ours = ptr::eq(listeners.own_event, key);
        if ours {
            listeners.own_event = ptr::null();
        }
        ours
    })
}

/// Returns the classes of events that may have listeners.
#[inline]
fn observed_classes() -> c_int {
    if LISTENERS.with(|listeners| listeners.other_modules) {
        return c_int::MAX;
    }
    // SAFETY: the function takes nothing and reads a setting.
    unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) }
}

/// Finds the modules that are loaded before this one. If the server does not list them, there may be listeners.
pub(super) fn find_modules<M: Module>(ctx: &mut Context<'_, M>) {
    LISTENERS.with(|listeners| *listeners = Listeners::NONE);
    let Some(listed) = modules(ctx) else { return LISTENERS.with(|listeners| listeners.other_modules = true) };
    let names = listed.split(|&byte| byte == b'\n').filter_map(|line| {
        let description = line.strip_prefix(b"module:name=")?;
        description.split(|&byte| byte == b',').next()
    });
    names.for_each(add_module::<M>);
}

/// Records a module that may listen. It still counts after it is unloaded, because that is too rare to keep track of.
fn add_module<M: Module>(module: &[u8]) {
    if module != M::NAME.to_bytes() && !BUNDLED.contains(&module) {
        LISTENERS.with(|listeners| listeners.other_modules = true);
    }
}

/// Returns the server's list of modules, as shown by INFO, or `None` if the configuration has disabled INFO.
fn modules<M>(ctx: &mut Context<'_, M>) -> Option<Vec<u8>> {
    // SAFETY: "c" takes a C string; the reply, if there is one, is the module's to read and to free, once, and its text
    // is copied before that.
    unsafe {
        let reply = api!(RedisModule_Call(ctx.raw(), c"INFO".as_ptr(), c"c".as_ptr(), c"modules".as_ptr()));
        if reply.is_null() {
            return None;
        }
        let mut len = 0;
        let start = api!(RedisModule_CallReplyStringPtr(reply, &raw mut len));
        let text = (!start.is_null()).then(|| slice::from_raw_parts(start.cast::<u8>(), len).to_vec());
        api!(RedisModule_FreeCallReply(reply));
        text
    }
}

/// Handles the loading or unloading of a module.
pub(super) unsafe extern "C" fn on_module_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _change: u64,
    data: *mut c_void,
) {
    let is_known = catch_panic("module change", false, || {
        // SAFETY: with this event comes this structure, and in it a C string, valid for this callback.
        let name = unsafe { CStr::from_ptr((*data.cast::<raw::RedisModuleModuleChange>()).module_name) };
        add_module::<M>(name.to_bytes());
        true
    });
    if !is_known {
        catch_panic("unknown module", (), || LISTENERS.with(|listeners| listeners.other_modules = true));
    }
}
