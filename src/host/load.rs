//! Loading and unloading.

use std::ffi::{CStr, c_int};
use std::io;

use redis_module::raw;

use super::api;
use super::context::Context;
use super::guard::guard;
use super::{alarm, audience, config, events, info, register, state};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// The name of the module: the first half of its commands and settings.
pub const NAME: &CStr = c"lock";

/// The version of the package as the server shows it: two decimal digits each for major, minor and patch.
const VERSION: c_int = version(env!("CARGO_PKG_VERSION").as_bytes());

#[allow(clippy::arithmetic_side_effects, reason = "computed by the compiler, to which an overflow is an error")]
const fn version(text: &[u8]) -> c_int {
    let (mut sum, mut part, mut rest) = (0, 0, text);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match *byte {
            b'.' => (sum, part) = ((sum + part) * 100, 0),
            digit => part = part * 10 + (digit - b'0') as c_int,
        }
    }
    sum + part
}

/// A promise to Valkey 9, in whose header it is `VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION`: the module keeps
/// working while a slot moves as a whole. Without it Valkey refuses to move slots at all.
const VALKEY_HANDLES_SLOT_MIGRATION: u32 = 1 << 5;

/// The server's entry when it loads the module.
///
/// # Safety
/// Called by the server, with its own context and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own context; the name is static. This must come first: it loads the API, allocator included.
    if unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) } != OK {
        return ERR;
    }
    guard("load", ERR, || {
        // SAFETY: the server's own context for this callback.
        match load(unsafe { Context::new(ctx) }, argc) {
            Ok(()) => OK,
            Err(reason) => {
                api::warn(ctx, &format!("redis-lock is not loaded: {reason}"));
                ERR
            }
        }
    })
}

/// The server's entry when it unloads the module. It does not come here while clients are blocked or a timer runs.
///
/// # Safety
/// Called by the server, with its own context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut raw::RedisModuleCtx) -> c_int {
    guard("unload", ERR, || {
        if state::with(|state| state.has_owners()) {
            api::warn(ctx, "redis-lock is not unloaded: locks belong to connections (lock_sessions in INFO lock)");
            return ERR;
        }
        alarm::uninstall();
        state::reset();
        OK
    })
}

fn load(ctx: Context<'_>, argc: c_int) -> Result<(), String> {
    if let Some(function) = api::missing() {
        return Err(format!("it needs Redis 7.0 or later, or Valkey; this server has no {function}"));
    }
    if argc > 0 {
        return Err(
            "it takes no arguments; set lock.max-waiters and the like in redis.conf or by CONFIG SET".to_owned()
        );
    }
    state::reset();
    find_commands(ctx)?;
    set_options(ctx);
    audience::look_for_modules(ctx);
    let step = |done: bool, what: &str| if done { Ok(()) } else { Err(format!("the server refused {what}")) };
    step(config::register(ctx), "its settings; is a value of lock.* out of range?")?;
    step(register::register(ctx), "its commands")?;
    step(info::register(ctx), "its part of INFO")?;
    alarm::install(ctx).map_err(|error| format!("no timer: {error}"))?;
    // Last, because the server does not end a subscription when loading fails.
    step(events::subscribe(ctx), "to tell it of events").inspect_err(|_| alarm::uninstall())?;
    warn_of_eviction(ctx);
    Ok(())
}

/// What the module calls, or tells replicas and the AOF to run. A command that is called by its name only is not found
/// under another one, and the server says nothing of it.
const CALLED: [&CStr; 7] = [c"SET", c"HSET", c"PEXPIREAT", c"DEL", c"EXISTS", c"SETRANGE", c"HDEL"];

fn find_commands(ctx: Context<'_>) -> Result<(), String> {
    let is_absent = |name: &&CStr| {
        // SAFETY: a context while loading; the format takes nothing. Each of them wants arguments, so none is run.
        let reply = unsafe { api!(RedisModule_Call(ctx.raw(), name.as_ptr(), c"".as_ptr())) };
        reply.is_null() && io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
    };
    match CALLED.into_iter().find(is_absent) {
        None => Ok(()),
        Some(name) => Err(format!(
            "it needs the command {} under its own name, and rename-command has changed that",
            name.to_string_lossy()
        )),
    }
}

fn set_options(ctx: Context<'_>) {
    let mut options =
        raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    // The same bit may come to mean something else to Redis.
    if server_info(ctx, c"server", c"server_name").is_some_and(|name| name == "valkey") {
        options |= VALKEY_HANDLES_SLOT_MIGRATION;
        state::with(|state| state.answers_by_stand_in = true);
    }
    // SAFETY: called while loading.
    unsafe { api!(RedisModule_SetModuleOptions(ctx.raw(), options as c_int)) };
}

/// Locks have an expiry, so every policy but one may take a lock from its holder.
fn warn_of_eviction(ctx: Context<'_>) {
    let policy = server_info(ctx, c"memory", c"maxmemory_policy");
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        let line = format!("maxmemory-policy is {policy}: the server may evict a lock that is held; use noeviction");
        api::warn(ctx.raw(), &line);
    }
}

/// One field of INFO.
fn server_info(ctx: Context<'_>, section: &CStr, field: &CStr) -> Option<String> {
    // SAFETY: the data is made and given back here, and the text copied before that.
    unsafe {
        let data = api!(RedisModule_GetServerInfo(ctx.raw(), section.as_ptr()));
        let text = api!(RedisModule_ServerInfoGetFieldC(data, field.as_ptr()));
        let text = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        api!(RedisModule_FreeServerInfo(ctx.raw(), data));
        text
    }
}
