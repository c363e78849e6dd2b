//! Events of the module's own writes, and their listeners.
//!
//! Native writes cause no keyspace events and do not touch watched keys, so [`Key::signal`] does both. It does not cause an event
//! that has no listeners: the event would cost the server a call, and would come back to this module, which has made the write.
//! Listeners are clients, as `notify-keyspace-events` says, and other modules. The server does not show what modules listen to,
//! so any other module counts as a listener.

use std::ffi::c_int;
use std::ptr;

use redis_module::raw;

use super::Event;
use crate::server::calls::CallMode;
use crate::server::context::Context;
use crate::server::key::Key;
use crate::server::module::Module;
use crate::server::state::state;

/// The classes of key events that the module subscribes to: those by which a key is deleted or its expiry time changes. The other
/// classes bring new values.
pub(super) const KEY_CLASSES: c_int =
    raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;

/// The class that the module may subscribe to later: events by which members of Sorted Sets are added and removed.
pub(super) const SORTED_SET_CLASS: c_int = raw::REDISMODULE_NOTIFY_ZSET as c_int;

/// Modules that are part of a server (Redis 8, Valkey 9) and do not listen to keys.
const BUNDLED: [&[u8]; 2] = [b"vectorset", b"lua"];

impl<M> Key<'_, '_, M> {
    /// Reports a change of the key to WATCH and client-side caches, and `events` to listeners.
    ///
    /// The key must not have expired: Redis 8.6 would delete it under the open handle.
    #[inline(always)]
    pub fn signal(&mut self, events: &[Event]) {
        debug_assert!(self.is_writable(), "a key is signalled that was not written");
        // SAFETY: context and name are valid while the key is open.
        unsafe { api!(RedisModule_SignalModifiedKey(self.ctx().raw(), self.name().raw())) };
        let subscriber_cache = subscribed_classes();
        if subscriber_cache != 0 {
            events.iter().filter(|Event(class, _)| class & subscriber_cache != 0).for_each(|event| self.notify(*event));
        }
    }

    fn notify(&mut self, Event(class, name): Event) {
        let key = self.name().raw();
        // The event also reaches this module, if it has subscribed to the class, and must not look like an external write.
        let comes_back = class & KEY_CLASSES != 0 || class & SORTED_SET_CLASS != 0 && state().hears_sorted_sets.get();
        state().own_event.set(if comes_back { key } else { ptr::null_mut() });
        // SAFETY: as in `signal`; the name of the event is a static C string.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.ctx().raw(), class, name.as_ptr(), key)) };
        state().own_event.set(ptr::null());
        self.cache.clear(); // Another module may have written the key when it got the event.
    }
}

/// Returns whether an event of `key` is the one that the module is causing itself. If so, the next one is not.
#[inline]
pub(super) fn take_own_event(key: *const raw::RedisModuleString) -> bool {
    let is_own = ptr::eq(state().own_event.get(), key);
    if is_own {
        state().own_event.set(ptr::null());
    }
    is_own
}

/// Returns the classes of events that may have listeners.
#[inline]
fn subscribed_classes() -> c_int {
    if state().has_other_modules.get() {
        return c_int::MAX;
    }
    // SAFETY: the function takes nothing and reads a setting.
    unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) }
}

/// Finds the modules that were loaded before this one. If the server does not list them, there may be listeners.
pub(in crate::server) fn find_modules<M: Module>(ctx: &Context<'_, M>) {
    let reply = ctx.call(c"INFO", CallMode::Read, &[b"modules"]);
    let Some(listed) = reply.as_ref().ok().and_then(|reply| reply.whole().bytes()) else {
        // The configuration has disabled INFO.
        return state().has_other_modules.set(true);
    };
    let names = listed.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"module:name="));
    names.filter_map(|line| line.split(|&byte| byte == b',').next()).for_each(add_module::<M>);
}

/// Records a module that may listen. It still counts after it is unloaded, which is too rare to keep track of.
pub(super) fn add_module<M: Module>(module: &[u8]) {
    if module != M::NAME.to_bytes() && !BUNDLED.contains(&module) {
        state().has_other_modules.set(true);
    }
}
