//! The table of all commands, with everything that the server learns about them.

use super::{draw_token::Draw, execute::Execute, inspect::Inspect, list_queues::ListQueues};
use crate::command::{Acquire, Extend, Info, Reenter, Release, Share, Waiters};
use crate::host::state::Locks;
use crate::server::{Access, Argument, Command, Keys, RunCommand, Shape, handler};

/// The key of a command that changes one lock. All keys of a command are in one range, so that cluster clients find them without
/// a request to the server.
const LOCK: Keys = Keys { first: 1, last: 1, step: 1, access: Access::Update };

/// Returns a description with what most commands have in common. `C` runs the command.
const fn of<C: RunCommand<Locks>>() -> Command {
    Command { own_category: "lock", keys: LOCK, since: c"0.1.0", ..Command::new(C::NAME, handler::<Locks, C>()) }
}

const KEY: Argument = Argument { name: c"key", token: None, shape: Shape::Key, optional: false };
const TOKEN: Argument = Argument { name: c"token", token: None, shape: Shape::Text, optional: false };
const OWNER: Argument = Argument { name: c"owner", token: None, shape: Shape::Text, optional: false };
const LEASE_FORMS: &[Argument] = &[
    Argument { name: c"seconds", token: Some(c"EX"), shape: Shape::Integer, optional: false },
    Argument { name: c"milliseconds", token: Some(c"PX"), shape: Shape::Integer, optional: false },
];
const LEASE: Argument = Argument { name: c"lease", token: None, shape: Shape::OneOf(LEASE_FORMS), optional: true };
const BLOCK: Argument = Argument { name: c"timeout", token: Some(c"BLOCK"), shape: Shape::Integer, optional: true };
const HOLD: Argument = Argument { name: c"hold", token: Some(c"HOLD"), shape: Shape::Integer, optional: true };
const SESSION: Argument = Argument { name: c"session", token: Some(c"SESSION"), shape: Shape::Word, optional: true };
const COUNT: Argument = Argument { name: c"count", token: Some(c"COUNT"), shape: Shape::Integer, optional: true };
const NOTIFY: Argument = Argument { name: c"channel", token: Some(c"NOTIFY"), shape: Shape::Text, optional: true };

/// All commands.
pub const COMMANDS: &[Command] = &[
    Command {
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        summary: c"Takes a mutex, or waits in line for it.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[
            KEY,
            TOKEN,
            LEASE,
            BLOCK,
            Argument { name: c"condition", token: Some(c"NX"), shape: Shape::Word, optional: true },
            SESSION,
            NOTIFY,
        ],
        ..of::<Execute<Acquire>>()
    },
    Command {
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        summary: c"Takes a re-entrant lock or one more hold of it, or waits in line for it.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[KEY, OWNER, LEASE, BLOCK, HOLD, SESSION, NOTIFY],
        ..of::<Execute<Reenter>>()
    },
    Command {
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        summary: c"Takes a share of a lock, as a reader or one of a limited number, or waits in line for it.",
        complexity: c"O(log(N)), where N is the number of shares of the lock and of requests that wait on the server",
        arguments: &[
            KEY,
            TOKEN,
            LEASE,
            Argument { name: c"limit", token: Some(c"LIMIT"), shape: Shape::Integer, optional: true },
            BLOCK,
            SESSION,
            NOTIFY,
        ],
        ..of::<Execute<Share>>()
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
        arguments: &[
            KEY,
            TOKEN,
            Argument { name: c"lease", token: None, shape: Shape::OneOf(LEASE_FORMS), optional: false },
            Argument { name: c"add", token: Some(c"ADD"), shape: Shape::Word, optional: true },
        ],
        ..of::<Execute<Extend>>()
    },
    Command {
        arity: 4,
        flags: "write deny-oom fast",
        acl_categories: "write fast",
        keys: Keys { first: 1, last: 3, step: 2, access: Access::Update },
        summary: c"Draws a fencing token, higher than every earlier one, for the present holder.",
        complexity: c"O(1)",
        arguments: &[KEY, TOKEN, Argument { name: c"counter", token: None, shape: Shape::Key, optional: false }],
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
];
