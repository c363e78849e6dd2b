//! The table of all commands, with everything that the server learns about them.

use std::ffi::CStr;

use super::{draw_token::Draw, execute::Execute, inspect::Inspect, list_queues::ListQueues, slow_log::SlowLogCommand};
use crate::command::{Acquire, Extend, Info, LockCommand, Reenter, Release, Share, Waiters};
use crate::host::state::Locks;
use crate::server::{Access, Argument, Command, Keys, RunCommand, Shape, handler};

/// The key of a command that changes one lock. All keys of a command are in one range, so that cluster clients find them without
/// a request to the server.
const LOCK: Keys = Keys { first: 1, last: 1, step: 1, access: Access::Update };

/// Returns a description with what most commands have in common. `C` runs the command.
const fn of<C: RunCommand<Locks>>() -> Command {
    Command { own_category: "lock", keys: LOCK, since: c"0.2.0", ..Command::new(C::NAME, handler::<Locks, C>()) }
}

/// Returns a description with what the commands that take a lock have in common.
const fn taking<C: LockCommand + 'static>() -> Command {
    Command {
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        ..of::<Execute<C>>()
    }
}

/// Returns an optional argument after a word.
const fn option(name: &'static CStr, token: &'static CStr, shape: Shape) -> Argument {
    Argument { name, token: Some(token), shape, optional: true }
}

const KEY: Argument = Argument { name: c"key", token: None, shape: Shape::Key, optional: false };
const TOKEN: Argument = Argument { name: c"token", token: None, shape: Shape::Text, optional: false };
const OWNER: Argument = Argument { name: c"owner", ..TOKEN };
const LEASE_FORMS: &[Argument] = &[
    Argument { name: c"seconds", token: Some(c"EX"), shape: Shape::Integer, optional: false },
    Argument { name: c"milliseconds", token: Some(c"PX"), shape: Shape::Integer, optional: false },
];
const LEASE: Argument = Argument { name: c"lease", token: None, shape: Shape::OneOf(LEASE_FORMS), optional: true };
const ADD: Argument = option(c"add", c"ADD", Shape::Word);
const BLOCK: Argument = option(c"timeout", c"BLOCK", Shape::Integer);
const CONDITION: Argument = option(c"condition", c"NX", Shape::Word);
const COUNT: Argument = option(c"count", c"COUNT", Shape::Integer);
const HOLD: Argument = option(c"hold", c"HOLD", Shape::Integer);
const LIMIT: Argument = option(c"limit", c"LIMIT", Shape::Integer);
const NOTIFY: Argument = option(c"channel", c"NOTIFY", Shape::Text);
const SESSION_WORDS: &[Argument] = &[
    Argument { name: c"session", token: Some(c"SESSION"), shape: Shape::Word, optional: false },
    option(c"grace", c"GRACE", Shape::Integer),
];
const SESSION: Argument =
    Argument { name: c"session", token: None, shape: Shape::Block(SESSION_WORDS), optional: true };
const MAX_WAITERS: Argument = option(c"max-waiters", c"MAXWAITERS", Shape::Integer);

/// Returns a subcommand, as one of the choices of a command.
const fn subcommand(name: &'static CStr, token: &'static CStr) -> Argument {
    Argument { name, token: Some(token), shape: Shape::Word, optional: false }
}

const GET: &[Argument] =
    &[subcommand(c"get", c"GET"), Argument { name: c"count", token: None, shape: Shape::Integer, optional: true }];
const SLOW_LOG_REQUESTS: &[Argument] = &[
    Argument { name: c"get-entries", token: None, shape: Shape::Block(GET), optional: false },
    subcommand(c"len", c"LEN"),
    subcommand(c"reset", c"RESET"),
];
const SLOW_LOG_REQUEST: Argument =
    Argument { name: c"request", token: None, shape: Shape::OneOf(SLOW_LOG_REQUESTS), optional: false };

/// All commands.
pub const COMMANDS: &[Command] = &[
    Command {
        summary: c"Takes a mutex, or waits in line for it.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[KEY, TOKEN, LEASE, BLOCK, CONDITION, SESSION, NOTIFY, MAX_WAITERS],
        ..taking::<Acquire>()
    },
    Command {
        summary: c"Takes a re-entrant lock or one more hold of it, or waits in line for it.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[KEY, OWNER, LEASE, BLOCK, HOLD, SESSION, NOTIFY, MAX_WAITERS],
        ..taking::<Reenter>()
    },
    Command {
        summary: c"Takes a share of a lock, as a reader or one of a limited number, or waits in line for it.",
        complexity: c"O(log(N)), where N is the number of shares of the lock and of requests that wait on the server",
        arguments: &[KEY, TOKEN, LEASE, LIMIT, BLOCK, SESSION, NOTIFY, MAX_WAITERS],
        ..taking::<Share>()
    },
    Command {
        arity: -3,
        flags: "write fast",
        acl_categories: "write fast",
        keys: Keys { access: Access::Delete, ..LOCK },
        summary: c"Gives up one hold of a lock, or a share, and hands a free lock to the next waiter.",
        complexity: c"O(1); O(log(N)) to hand over or to give up a share, where N is the number of shares of the lock and of requests that wait on the server",
        arguments: &[KEY, TOKEN, HOLD, LEASE],
        ..of::<Execute<Release>>()
    },
    Command {
        arity: -5,
        flags: "write fast",
        acl_categories: "write fast",
        summary: c"Sets or lengthens the lease of a lock that the caller holds.",
        complexity: c"O(1)",
        arguments: &[KEY, TOKEN, Argument { optional: false, ..LEASE }, ADD],
        ..of::<Execute<Extend>>()
    },
    Command {
        arity: 4,
        flags: "write deny-oom fast",
        acl_categories: "write fast",
        keys: Keys { first: 1, last: 3, step: 2, access: Access::Update },
        summary: c"Draws a fencing token, higher than every earlier one, for the present holder.",
        complexity: c"O(1)",
        arguments: &[KEY, TOKEN, Argument { name: c"counter", ..KEY }],
        ..of::<Draw>()
    },
    Command {
        arity: 2,
        flags: "readonly fast",
        acl_categories: "read fast",
        keys: Keys { access: Access::Read, ..LOCK },
        summary: c"Tells who holds a lock, for how long, and how many wait.",
        complexity: c"O(1)",
        arguments: &[KEY],
        ..of::<Inspect<Info>>()
    },
    Command {
        arity: -2,
        flags: "readonly",
        acl_categories: "read slow",
        keys: Keys { access: Access::Read, ..LOCK },
        summary: c"Lists who waits for a lock, first in line first.",
        complexity: c"O(N), where N is the number of waiters listed",
        arguments: &[KEY, COUNT],
        ..of::<Inspect<Waiters>>()
    },
    Command {
        arity: -1,
        flags: "readonly admin",
        acl_categories: "read admin dangerous slow",
        keys: Keys::NONE,
        summary: c"Lists the most contended locks of the selected database.",
        complexity: c"O(N), where N is the number of locks that are waited for on the server",
        arguments: &[COUNT],
        ..of::<ListQueues>()
    },
    Command {
        arity: -2,
        flags: "admin allow-loading allow-stale",
        acl_categories: "admin dangerous slow",
        keys: Keys::NONE,
        summary: c"Lists the latest waits that took long, or drops them.",
        complexity: c"O(N), where N is the number of entries listed or dropped",
        arguments: &[SLOW_LOG_REQUEST],
        ..of::<SlowLogCommand>()
    },
];
