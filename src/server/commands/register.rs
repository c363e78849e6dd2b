//! Registers the module's commands with the server.

use std::ffi::{CStr, CString, c_int};
use std::ptr;

use redis_module::raw;

use crate::server::CommandHandler;
use crate::server::api::OK;
use crate::server::command::{Access, Argument, Command, Keys, Shape};
use crate::server::context::Context;
use crate::server::module::Module;

/// Registers all commands. Returns `false` if the server refuses one.
pub(in crate::server) fn register<M: Module>(ctx: &Context<'_, M>) -> bool {
    M::COMMANDS.iter().all(|command| {
        add_acl_category(ctx, command.own_category);
        create(ctx, command).is_some_and(|registered| describe(registered, command))
    })
}

fn create<M>(ctx: &Context<'_, M>, command: &Command) -> Option<*mut raw::RedisModuleCommand> {
    let (name, flags) = (CString::new(command.name).ok()?, CString::new(command.flags).ok()?);
    let CommandHandler(function) = command.handler;
    let Keys { first, last, step, .. } = command.keys;
    // SAFETY: called while loading; the server copies name and flags.
    unsafe {
        let created =
            api!(RedisModule_CreateCommand(ctx.raw(), name.as_ptr(), function, flags.as_ptr(), first, last, step));
        if created != OK {
            return None;
        }
        let registered = api!(RedisModule_GetCommand(ctx.raw(), name.as_ptr()));
        debug_assert!(!registered.is_null(), "the server does not find the command {}", command.name);
        Some(registered)
    }
}

/// Sets arity, key specification, ACL categories and documentation. Returns `false` if the server refuses them.
fn describe(registered: *mut raw::RedisModuleCommand, command: &Command) -> bool {
    // Newer servers would search for the keys of a specification without keys beyond the last argument.
    let mut key_specs = [if command.keys.first > 0 { key_spec(&command.keys) } else { end_of_list() }, end_of_list()];
    let mut lists = Vec::new();
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: command.summary.as_ptr(),
        complexity: command.complexity.as_ptr(),
        since: command.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: command.arity,
        key_specs: key_specs.as_mut_ptr(),
        args: argument_list(&(command.arguments)(), &mut lists),
    };
    // SAFETY: the server copies the structure and its lists before this function returns; lists end with a zeroed element.
    unsafe {
        api!(RedisModule_SetCommandInfo(registered, &raw const info)) == OK && set_acl_categories(registered, command)
    }
}

/// The sizes of the structures below, which tell the server their version.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

fn key_spec(keys: &Keys) -> raw::RedisModuleCommandKeySpec {
    let access = match keys.access {
        Access::Read => raw::REDISMODULE_CMD_KEY_RO,
        Access::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        Access::Delete => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    let mut spec = end_of_list();
    spec.flags = u64::from(access | raw::REDISMODULE_CMD_KEY_ACCESS);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = keys.first;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    // The server counts the last key from the first. A small negative number, which counts from the end, does not saturate.
    let lastkey = keys.last.saturating_sub(keys.first);
    spec.fk.range =
        raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey, keystep: keys.step, limit: 0 };
    spec
}

fn end_of_list() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: a C structure of numbers and pointers, for which zeroes are valid; such an element ends a list.
    unsafe { std::mem::zeroed() }
}

/// Returns the documentation of arguments as the list that the server expects. `lists` owns it and its inner lists.
fn argument_list(
    arguments: &[Argument],
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    let mut list: Vec<_> = arguments.iter().map(|argument| describe_argument(argument, lists)).collect();
    list.push(no_argument());
    // The elements do not move on the heap when the list moves.
    let start = list.as_mut_ptr();
    lists.push(list);
    start
}

/// Returns the element that ends a list of arguments.
fn no_argument() -> raw::RedisModuleCommandArg {
    // SAFETY: as in `end_of_list`.
    unsafe { std::mem::zeroed() }
}

fn describe_argument(
    argument: &Argument,
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> raw::RedisModuleCommandArg {
    let (type_, inner) = match &argument.shape {
        Shape::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, None),
        Shape::Text => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, None),
        Shape::Integer => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, None),
        Shape::Word => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, None),
        Shape::Block(parts) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, Some(parts)),
        Shape::OneOf(choices) => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, Some(choices)),
    };
    let flags = if argument.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { raw::REDISMODULE_CMD_ARG_NONE };
    raw::RedisModuleCommandArg {
        name: argument.name.as_ptr(),
        type_,
        key_spec_index: if matches!(argument.shape, Shape::Key) { 0 } else { -1 },
        token: argument.token.map_or(ptr::null(), CStr::as_ptr),
        flags: flags as c_int,
        subargs: inner.map_or(ptr::null_mut(), |inner| argument_list(inner, lists)),
        ..no_argument()
    }
}

/// Returns whether a module can add an ACL category (Redis 7.4, Valkey 8).
pub fn has_own_acl_categories() -> bool {
    has_api!(RedisModule_AddACLCategory)
}

/// Adds an ACL category, on servers that let a module add one.
fn add_acl_category<M>(ctx: &Context<'_, M>, name: &str) {
    if let (true, false, Ok(name)) = (has_own_acl_categories(), name.is_empty(), CString::new(name)) {
        // The server refuses a category that it has, so the result means nothing.
        // SAFETY: called while loading; the server copies the name.
        unsafe { api!(RedisModule_AddACLCategory(ctx.raw(), name.as_ptr())) };
    }
}

/// Sets the ACL categories of a command, on servers that let a module choose them (Redis 7.2, Valkey).
fn set_acl_categories(registered: *mut raw::RedisModuleCommand, command: &Command) -> bool {
    if !has_api!(RedisModule_SetCommandACLCategories) {
        return true;
    }
    let own_category = if has_own_acl_categories() { command.own_category } else { "" };
    // No category has a NUL.
    let Ok(categories) = CString::new(format!("{} {own_category}", command.acl_categories).trim_end()) else {
        return false;
    };
    // SAFETY: called while loading; the server copies the text.
    unsafe { api!(RedisModule_SetCommandACLCategories(registered, categories.as_ptr())) == OK }
}
