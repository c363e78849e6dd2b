//! Access to the server's functions, which are pointers that are set when the module is loaded.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use redis_module::raw;

/// The result of a function that has succeeded.
pub const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The result of a function that has failed.
pub const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Calls a function of the module API: `api!(RedisModule_CloseKey(key))`, in an unsafe block.
///
/// Every function that is called this way is listed in [`REQUIRED`], so a server without it refuses to load the
/// module.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match ::redis_module::raw::$function {
            Some(function) => function($($argument),*),
            None => $crate::server::api::missing_function(stringify!($function)),
        }
    };
}

/// Returns whether the server has a function.
macro_rules! has_api {
    ($function:ident) => {{
        // SAFETY: the pointers are written once, while the module is loaded on this thread, and only read from then on.
        let function = unsafe { ::redis_module::raw::$function };
        function.is_some()
    }};
}

/// The names of the required functions, without the prefix `RedisModule_`.
const REQUIRED: &str = "
    ACLCheckChannelPermissions ACLCheckCommandPermissions AvoidReplicaTraffic BlockClientOnKeys Call BlockedClientDisconnected
    CallReplyArrayElement CallReplyInteger CallReplyStringPtr CallReplyType ACLAddLogEntry CloseKey CreateCommand
    CreateModuleUser CreateString CreateTimer DeleteKey EventLoopAdd EventLoopDel FreeCallReply FreeModuleUser FreeServerInfo
    FreeString FreeThreadSafeContext GetAbsExpire GetBlockedClientPrivateData GetClientId GetClientInfoById GetCommand
    GetContextFlags GetCurrentUserName GetDetachedThreadSafeContext GetModuleUserFromUserName GetNotifyKeyspaceEvents
    GetSelectedDb GetServerInfo HashGet HashSet InfoAddFieldCString InfoAddFieldULongLong InfoAddSection KeyType LoadConfigs Log Milliseconds
    NotifyKeyspaceEvent OpenKey PublishMessageShard RegisterBoolConfig RegisterInfoFunc RegisterNumericConfig Replicate
    ReplyWithArray ReplyWithError ReplyWithLongLong ReplyWithMap ReplyWithNull ReplyWithSimpleString ReplyWithStringBuffer
    ScanCursorCreate ScanCursorDestroy ScanKey SelectDb ServerInfoGetFieldC SetAbsExpire SetCommandInfo SetDisconnectCallback
    SetModuleOptions SetModuleUserACL SignalModifiedKey StopTimer StringDMA StringPtrLen StringSet StringTruncate
    SubscribeToKeyspaceEvents SubscribeToServerEvent UnblockClient ValueLength ZsetAdd ZsetFirstInScoreRange
    ZsetLastInScoreRange ZsetRangeCurrentElement ZsetRangeEndReached ZsetRangeNext ZsetRangeStop ZsetRem ZsetScore
";

/// Returns the name of a required function that this server does not have, if there is one.
pub fn first_missing() -> Option<String> {
    // SAFETY: the pointer is written once, while the module is loaded on this thread, and only read from then on.
    let find = unsafe { raw::RedisModule_GetApi };
    let has = |name: &CString| {
        let mut function = ptr::null_mut::<c_void>();
        // SAFETY: a C string, and a place for a pointer.
        find.is_some_and(|find| unsafe { find(name.as_ptr(), (&raw mut function).cast()) } == OK)
    };
    let mut names = REQUIRED.split_whitespace().map(|name| format!("RedisModule_{name}"));
    names.find(|name| !CString::new(name.as_str()).is_ok_and(|name| has(&name)))
}

/// Panics, because the server does not have a function. Loading has checked that it has every function.
///
/// # Panics
///
/// Always. The callback that made the call catches the panic.
#[cold]
#[expect(clippy::panic, reason = "the caller needs a value that does not exist, and every entry catches panics")]
pub fn missing_function(function: &'static str) -> ! {
    panic!("this server has no {function}")
}

/// Writes a line into the server's log. `ctx` may be null. The level is `warning` or `notice`.
pub fn log(ctx: *mut raw::RedisModuleCtx, level: &'static CStr, line: &str) {
    let Ok(line) = CString::new(line) else { return }; // No line has a NUL.
    // SAFETY: the API was loaded before anything is logged; "%s" takes exactly the one C string that follows it.
    unsafe { api!(RedisModule_Log(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr())) }
}
