//! Access to the server's functions, which are pointers that are set when the module is loaded.

use std::ffi::{CStr, CString, c_int};

use redis_module::raw;

/// The result of a function that has succeeded.
pub const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The result of a function that has failed.
pub const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Calls a function of the module API: `api!(RedisModule_CloseKey(key))`, in an unsafe block.
///
/// Every function that is called this way is listed in [`first_missing`], so a server without it refuses to load the
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

/// Returns the name of a required function that this server does not have, if there is one.
#[expect(clippy::too_many_lines, reason = "a list of names")]
pub fn first_missing() -> Option<&'static str> {
    macro_rules! first_absent {
        ($($function:ident),* $(,)?) => {
            [$((stringify!($function), has_api!($function))),*].into_iter().find(|(_, there)| !there).map(|(name, _)| name)
        };
    }
    first_absent![
        RedisModule_ACLCheckChannelPermissions,
        RedisModule_ACLCheckCommandPermissions,
        RedisModule_AvoidReplicaTraffic,
        RedisModule_BlockClientOnKeys,
        RedisModule_Call,
        RedisModule_BlockedClientDisconnected,
        RedisModule_CallReplyArrayElement,
        RedisModule_CallReplyInteger,
        RedisModule_CallReplyStringPtr,
        RedisModule_CallReplyType,
        RedisModule_ACLAddLogEntry,
        RedisModule_CloseKey,
        RedisModule_CreateCommand,
        RedisModule_CreateModuleUser,
        RedisModule_CreateString,
        RedisModule_CreateTimer,
        RedisModule_DeleteKey,
        RedisModule_EventLoopAdd,
        RedisModule_EventLoopDel,
        RedisModule_FreeCallReply,
        RedisModule_FreeModuleUser,
        RedisModule_FreeServerInfo,
        RedisModule_FreeString,
        RedisModule_FreeThreadSafeContext,
        RedisModule_GetAbsExpire,
        RedisModule_GetBlockedClientPrivateData,
        RedisModule_GetClientId,
        RedisModule_GetClientInfoById,
        RedisModule_GetCommand,
        RedisModule_GetContextFlags,
        RedisModule_GetCurrentUserName,
        RedisModule_GetDetachedThreadSafeContext,
        RedisModule_GetModuleUserFromUserName,
        RedisModule_GetNotifyKeyspaceEvents,
        RedisModule_GetSelectedDb,
        RedisModule_GetServerInfo,
        RedisModule_HashGet,
        RedisModule_HashSet,
        RedisModule_InfoAddFieldULongLong,
        RedisModule_InfoAddSection,
        RedisModule_KeyType,
        RedisModule_LoadConfigs,
        RedisModule_Log,
        RedisModule_Milliseconds,
        RedisModule_NotifyKeyspaceEvent,
        RedisModule_OpenKey,
        RedisModule_PublishMessageShard,
        RedisModule_RegisterBoolConfig,
        RedisModule_RegisterInfoFunc,
        RedisModule_RegisterNumericConfig,
        RedisModule_Replicate,
        RedisModule_ReplyWithArray,
        RedisModule_ReplyWithError,
        RedisModule_ReplyWithLongLong,
        RedisModule_ReplyWithMap,
        RedisModule_ReplyWithNull,
        RedisModule_ReplyWithSimpleString,
        RedisModule_ReplyWithStringBuffer,
        RedisModule_ScanCursorCreate,
        RedisModule_ScanCursorDestroy,
        RedisModule_ScanKey,
        RedisModule_SelectDb,
        RedisModule_ServerInfoGetFieldC,
        RedisModule_SetAbsExpire,
        RedisModule_SetCommandInfo,
        RedisModule_SetDisconnectCallback,
        RedisModule_SetModuleOptions,
        RedisModule_SetModuleUserACL,
        RedisModule_SignalModifiedKey,
        RedisModule_StopTimer,
        RedisModule_StringDMA,
        RedisModule_StringPtrLen,
        RedisModule_StringSet,
        RedisModule_StringTruncate,
        RedisModule_SubscribeToKeyspaceEvents,
        RedisModule_SubscribeToServerEvent,
        RedisModule_UnblockClient,
        RedisModule_ValueLength,
        RedisModule_ZsetAdd,
        RedisModule_ZsetFirstInScoreRange,
        RedisModule_ZsetLastInScoreRange,
        RedisModule_ZsetRangeCurrentElement,
        RedisModule_ZsetRangeEndReached,
        RedisModule_ZsetRangeNext,
        RedisModule_ZsetRangeStop,
        RedisModule_ZsetRem,
        RedisModule_ZsetScore,
    ]
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
