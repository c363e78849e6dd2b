//! Loads and unloads a module.

mod unloading;

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::api::{self, ERR, OK};
use super::context::{Context, ContextFlags};
#[cfg(feature = "failpoints")]
use super::failpoints;
use super::module::Module;
use super::panics::{catch_panic, log_panics};
use super::state::{set_main_thread, state};
use super::timer::schedule::ServerTimer;
use super::{commands, events, info, settings, timer};

/// Returns a version in the server's format: two decimal digits each for major, minor and patch.
fn version(text: &str) -> c_int {
    let parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |sum: c_int, part| sum.saturating_mul(100).saturating_add(part))
}

/// The option `VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION` of Valkey 9: the module works while a slot moves as a
/// whole. Without it Valkey refuses to move slots.
const VALKEY_HANDLES_SLOT_MIGRATION: u32 = 1 << 5;

/// The only reason for which a server refuses the name of a module.
const ALREADY_LOADED: &str = "a module of this name is loaded already; is `loadmodule` given twice? CONFIG REWRITE adds it \
                              to the main file if it stands in an included file or on the command line";

/// Loads module `M`, as the server asks through `RedisModule_OnLoad`.
///
/// # Safety
///
/// The server calls this with the arguments of that function.
pub unsafe fn load<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let (name, number) = (M::NAME.as_ptr(), version(M::VERSION));
    // SAFETY: the server's own context; the name is static. This must come first: it loads the API, allocator included.
    let is_accepted =
        unsafe { raw::Export_RedisModule_Init(ctx, name, number, raw::REDISMODULE_APIVER_1 as c_int) } == OK;
    let not_loaded = |reason: &str| {
        api::log(ctx, c"warning", &format!("module {} is not loaded: {reason}", M::NAME.to_string_lossy()));
        ERR
    };
    if !is_accepted {
        return catch_panic("load", ERR, |_| not_loaded(ALREADY_LOADED));
    }
    set_main_thread();
    state().clear();
    log_panics(M::panicked);
    // SAFETY: the server's own context for this callback.
    let mut context = unsafe { Context::<M>::new(ctx) };
    let loaded =
        catch_panic("load", ERR, |_| load_parts(&mut context, argc).map_or_else(|reason| not_loaded(&reason), |()| OK));
    if loaded == OK {
        catch_panic("loaded", (), |_| unloading::loaded(&mut context));
    } else {
        // The server unloads the library, also after a panic.
        catch_panic("no load", (), |_| timer::uninstall());
        #[cfg(feature = "failpoints")]
        failpoints::clear();
    }
    loaded
}

/// Unloads module `M`, as the server asks through `RedisModule_OnUnload`. The server does not ask while clients are
/// blocked or a server timer is set.
///
/// # Safety
///
/// The server calls this with the argument of that function.
pub unsafe fn unload<M: Module>(ctx: *mut raw::RedisModuleCtx) -> c_int {
    let may_unload = catch_panic("unload", false, |_| {
        // SAFETY: the server's own context for this callback.
        let mut ctx = unsafe { Context::<M>::new(ctx) };
        let name = M::NAME.to_string_lossy();
        let reason = M::state().with(ctx.server(), M::may_unload).err().map(str::to_owned);
        let reason = reason.or_else(|| unloading::danger(&mut ctx, &format!("{name}.")));
        if let Some(reason) = &reason {
            ctx.warn(&format!("module {name} is not unloaded: {reason}"));
        }
        reason.is_none()
    });
    if !may_unload {
        return ERR;
    }
    debug_assert!(state().server_timer.get() == ServerTimer::Off, "the module is unloaded while a server timer is set");
    // Each step is caught on its own, because the first one cannot be undone.
    catch_panic("end", (), |_| timer::uninstall());
    catch_panic("end", (), |_| state().clear());
    catch_panic("end", (), |_| M::state().replace(M::new_state()));
    #[cfg(feature = "failpoints")]
    failpoints::clear();
    OK
}

fn load_parts<M: Module>(ctx: &mut Context<'_, M>, argc: c_int) -> Result<(), String> {
    if let Some(function) = api::first_missing() {
        return Err(format!("it needs Redis 7.0 or later, or Valkey; this server has no {function}"));
    }
    if argc > 0 {
        let name = M::NAME.to_string_lossy();
        return Err(format!("it takes no arguments; set {name}.* in the configuration file or by CONFIG SET"));
    }
    M::state().replace(M::new_state());
    check_needed_commands(ctx)?;
    set_options(ctx);
    events::find_modules(ctx);
    let step = |done: bool, what: &str| {
        #[cfg(feature = "failpoints")]
        failpoints::pass();
        if done { Ok(()) } else { Err(format!("the server refused {what}")) }
    };
    step(settings::register(ctx), "its settings; is a value out of range?")?;
    step(commands::register(ctx), "its commands")?;
    step(info::register(ctx), "its part of INFO")?;
    #[cfg(feature = "failpoints")]
    step(failpoints::register(ctx.raw()), "failpoints")?;
    timer::install(ctx).map_err(|error| format!("no timer: {error}"))?;
    // The last step, because the server does not end a subscription when loading fails.
    step(events::subscribe_at_load(ctx), "to report events")?;
    // The module stays loaded if this panics, because Redis 7.0 would keep the subscriptions of a module that is not loaded.
    catch_panic("loaded", (), |_| M::loaded(ctx));
    Ok(())
}

/// Checks that `rename-command` has renamed no command that the module calls by name.
fn check_needed_commands<M: Module>(ctx: &Context<'_, M>) -> Result<(), String> {
    let is_absent = |name: &&&'static CStr| !ctx.has_command(name);
    let in_cluster = if ctx.flags().contains(ContextFlags::CLUSTER) { M::NEEDED_IN_CLUSTER } else { &[] };
    let Some(name) = M::NEEDED_COMMANDS.iter().chain(in_cluster).find(is_absent) else { return Ok(()) };
    let name = name.to_string_lossy();
    Err(format!("it needs the command {name} under its own name, and rename-command has changed that"))
}

fn set_options<M>(ctx: &mut Context<'_, M>) {
    let mut options =
        raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    let is_valkey = ctx.server_info(c"server", c"server_name").is_some_and(|name| name == "valkey");
    // The same bit may mean something else to a later Redis.
    if is_valkey {
        options |= VALKEY_HANDLES_SLOT_MIGRATION;
    }
    let is_redict = ctx.server_info(c"server", c"redict_version").is_some();
    state().uses_stand_in.set(is_valkey || is_redict);
    state().in_cluster.set(ctx.flags().contains(ContextFlags::CLUSTER));
    // SAFETY: called while loading, with a valid context.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), options as c_int)) };
}

/// Defines the two functions by which a server loads and unloads the module of this crate.
#[macro_export]
macro_rules! entry_points {
    ($module:ty) => {
        /// The server's entry when it loads the module.
        ///
        /// # Safety
        /// Called by the server, with its own context and arguments.
        #[expect(unsafe_code, reason = "the server finds it by its name")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut $crate::server::RawContext,
            argv: *mut *mut $crate::server::RawString,
            argc: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: by the contract of this function.
            unsafe { $crate::server::load::<$module>(ctx, argv, argc) }
        }

        /// The server's entry when it unloads the module.
        ///
        /// # Safety
        /// Called by the server, with its own context.
        #[expect(unsafe_code, reason = "the server finds it by its name")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut $crate::server::RawContext) -> ::std::ffi::c_int {
            // SAFETY: by the contract of this function.
            unsafe { $crate::server::unload::<$module>(ctx) }
        }
    };
}
