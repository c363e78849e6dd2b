//! Who hears of the module's own writes.
//!
//! Native writes cause no keyspace events and do not wake WATCH, so both are done here. An event that nobody listens to is
//! not caused: each would cost the server a call, and come back to the module, which knows already. Listeners are clients,
//! by the server's `notify-keyspace-events`, and other modules, which do not show: if there is one, it may listen.

use std::ffi::{CStr, c_int, c_void};
use std::{ptr, slice};

use redis_module::raw;

use super::context::Context;
use super::event::Event;
use super::key::Key;
use super::main_thread::MainThread;
use super::module::Module;
use super::panics::catch_panic;

/// The classes of key events that a module hears: those by which a key goes, or its expiry moves. The other classes bring new
/// values.
pub(super) const SUBSCRIBED: c_int =
    raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;

/// Modules that are part of a server (Redis 8, Valkey 9) and listen to no keys.
const BUNDLED: [&[u8]; 2] = [b"vectorset", b"lua"];

static LISTENERS: MainThread<Listeners> = MainThread::new(Listeners::NONE);

struct Listeners {
    /// There is, or was, a module besides this one, which may listen to key events.
    other_modules: bool,
    /// The name, as the server's string, of the key whose next event is of the module's own making; null: of none.
    own_event: *const raw::RedisModuleString,
}

impl Listeners {
    const NONE: Self = Self { other_modules: false, own_event: ptr::null() };
}

impl<M> Key<'_, '_, M> {
    /// Tells WATCH and client-side caches that the key has changed, and listeners how.
    #[inline(always)]
    pub fn signal(&mut self, events: &[Event]) {
        // SAFETY: context and name are valid while the key is open.
        unsafe { api!(RedisModule_SignalModifiedKey(self.ctx().raw(), self.name().raw())) };
        let heard = observed_classes();
        if heard != 0 {
            events.iter().filter(|Event(class, _)| class & heard != 0).for_each(|event| self.notify(*event));
        }
    }

    fn notify(&mut self, Event(class, name): Event) {
        let key = self.name().raw();
        // The event also reaches the module's own handler, if that hears its class, and would be taken for somebody else's doing.
        let comes_back = class & SUBSCRIBED != 0;
        LISTENERS.with(|listeners| listeners.own_event = if comes_back { key } else { ptr::null_mut() });
        // SAFETY: as in `signal`; the name of the event is a static C string.
        unsafe { api!(RedisModule_NotifyKeyspaceEvent(self.ctx().raw(), class, name.as_ptr(), key)) };
        LISTENERS.with(|listeners| listeners.own_event = ptr::null());
    }
}

/// Whether this is the event that the module itself is about to cause; if so, it is expected no more.
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

/// The classes of events that anybody may listen to.
#[inline]
fn observed_classes() -> c_int {
    if LISTENERS.with(|listeners| listeners.other_modules) {
        return c_int::MAX;
    }
    // SAFETY: the function takes nothing and reads a setting.
    unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) }
}

/// Looks which modules are there already, when this one is loaded. If the server does not say, somebody may listen.
pub(super) fn find_modules<M: Module>(ctx: &mut Context<'_, M>) {
    LISTENERS.with(|listeners| *listeners = Listeners::NONE);
    let Some(listed) = modules(ctx) else { return LISTENERS.with(|listeners| listeners.other_modules = true) };
    let names = listed.split(|&byte| byte == b'\n').filter_map(|line| {
        let description = line.strip_prefix(b"module:name=")?;
        description.split(|&byte| byte == b',').next()
    });
    names.for_each(add_module::<M>);
}

/// A module that may listen changes what there is to do for this one. One that is gone again still counts: it is not worth
/// the book-keeping.
fn add_module<M: Module>(module: &[u8]) {
    if module != M::NAME.to_bytes() && !BUNDLED.contains(&module) {
        LISTENERS.with(|listeners| listeners.other_modules = true);
    }
}

/// The server's list of modules, as INFO shows it. `None` where the configuration has taken INFO away.
fn modules<M>(ctx: &mut Context<'_, M>) -> Option<Vec<u8>> {
    // SAFETY: "c" takes a C string; the reply, if there is one, is the module's to read and to free, once, and its text is
    // copied before that.
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

/// A module was loaded or unloaded.
pub(super) unsafe extern "C" fn on_module_change<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _change: u64,
    data: *mut c_void,
) {
    catch_panic("module change", (), || {
        // SAFETY: with this event comes this structure, and in it a C string, valid for this callback.
        let name = unsafe { CStr::from_ptr((*data.cast::<raw::RedisModuleModuleChange>()).module_name) };
        add_module::<M>(name.to_bytes());
    });
}
