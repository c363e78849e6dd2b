//! The table of all commands, with everything that the server learns about them.

use super::{draw_token::Draw, execute::Execute, inspect::Inspect, list_queues::ListQueues, slow_log::SlowLogCommand};
use crate::command::options::{Allowed, OPTION_TABLE, OptionRow, OptionValue};
use crate::command::{Acquire, Extend, Info, Inspection, LockCommand, Queues, Reenter, Release, Share, Waiters};
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

const KEY: Argument = Argument { name: c"key", token: None, shape: Shape::Key, optional: false };
const COUNTER: Argument = Argument { name: c"counter", ..KEY };
const TOKEN: Argument = Argument { name: c"token", token: None, shape: Shape::Text, optional: false };
const OWNER: Argument = Argument { name: c"owner", ..TOKEN };

/// Returns these arguments and the options of a command.
fn with(arguments: &[Argument], options: Allowed) -> Vec<Argument> {
    let mut all = arguments.to_vec();
    let mut left = options;
    for row in OPTION_TABLE {
        if left.contains(row.flag) {
            left.remove(row.flag);
            all.push(option(row.flag));
        }
    }
    all
}

/// Returns the option with this flag: an argument, or a choice among its forms.
fn option(flag: Allowed) -> Argument {
    let mut forms: Vec<Argument> = OPTION_TABLE.iter().filter(|row| row.flag == flag).map(form).collect();
    let mut argument = match forms.len() {
        1 => forms.remove(0),
        _ => Argument { name: c"lease", token: None, shape: Shape::OneOf(forms), optional: true },
    };
    argument.optional = true;
    argument
}

fn form(row: &OptionRow) -> Argument {
    let shape = match row.value {
        OptionValue::Nothing => Shape::Word,
        OptionValue::Integer => Shape::Integer,
        OptionValue::Text => Shape::Text,
    };
    Argument { name: row.name, token: Some(row.word), shape, optional: false }
}

/// Returns the arguments of LOCK.EXTEND, whose lease is no option.
fn extend() -> Vec<Argument> {
    let lease = Argument { optional: false, ..option(Allowed::LEASE) };
    with(&[KEY, TOKEN, lease], Extend::OPTIONS.difference(Allowed::LEASE))
}

/// Returns the arguments of LOCK.SLOWLOG: one of its subcommands.
fn slow_log() -> Vec<Argument> {
    let word = |name, token| Argument { name, token: Some(token), shape: Shape::Word, optional: false };
    let count = Argument { name: c"count", token: None, shape: Shape::Integer, optional: true };
    let get = Shape::Block(vec![word(c"get", c"GET"), count]);
    let get = Argument { name: c"get-entries", token: None, shape: get, optional: false };
    let requests = Shape::OneOf(vec![get, word(c"len", c"LEN"), word(c"reset", c"RESET")]);
    vec![Argument { name: c"request", token: None, shape: requests, optional: false }]
}

/// All commands.
pub const COMMANDS: &[Command] = &[
    Command {
        summary: c"Acquires a mutex, or waits for it in a fair queue.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests waiting on the server",
        arguments: || with(&[KEY, TOKEN], Acquire::OPTIONS),
        ..taking::<Acquire>()
    },
    Command {
        summary: c"Acquires a re-entrant lock or one more hold of it, or waits for it in a fair queue.",
        complexity: c"O(1); O(log(N)) to wait, where N is the number of requests waiting on the server",
        arguments: || with(&[KEY, OWNER], Reenter::OPTIONS),
        ..taking::<Reenter>()
    },
    Command {
        summary: c"Acquires a share of a lock, as a reader or as one of a limited number, or waits for it in a fair queue.",
        complexity: c"O(log(N)), where N is the number of shares of the lock and of requests waiting on the server",
        arguments: || with(&[KEY, TOKEN], Share::OPTIONS),
        ..taking::<Share>()
    },
    Command {
        arity: -3,
        flags: "write fast",
        acl_categories: "write fast",
        keys: Keys { access: Access::Delete, ..LOCK },
        summary: c"Releases one hold of a lock, or a share, and grants a free lock to the next waiter.",
        complexity: c"O(1); O(log(N)) to hand over or to release a share, where N is the number of shares of the lock and of requests waiting on the server",
        arguments: || with(&[KEY, TOKEN], Release::OPTIONS),
        ..of::<Execute<Release>>()
    },
    Command {
        arity: -5,
        flags: "write fast",
        acl_categories: "write fast",
        summary: c"Sets or lengthens the lease of a lock that the caller holds.",
        complexity: c"O(1)",
        arguments: extend,
        ..of::<Execute<Extend>>()
    },
    Command {
        arity: 4,
        flags: "write deny-oom fast",
        acl_categories: "write fast",
        keys: Keys { first: 1, last: 3, step: 2, access: Access::Update },
        summary: c"Returns a fencing token for the current holder, higher than all earlier ones.",
        complexity: c"O(1)",
        arguments: || vec![KEY, TOKEN, COUNTER],
        ..of::<Draw>()
    },
    Command {
        arity: 2,
        flags: "readonly fast",
        acl_categories: "read fast",
        keys: Keys { access: Access::Read, ..LOCK },
        summary: c"Returns the holder of a lock, the remaining lease, and the number of waiters.",
        complexity: c"O(1)",
        arguments: || with(&[KEY], Info::OPTIONS),
        ..of::<Inspect<Info>>()
    },
    Command {
        arity: -2,
        flags: "readonly",
        acl_categories: "read slow",
        keys: Keys { access: Access::Read, ..LOCK },
        summary: c"Returns the waiters of a lock, in the order in which they will get it.",
        complexity: c"O(N), where N is the number of waiters listed",
        arguments: || with(&[KEY], Waiters::OPTIONS),
        ..of::<Inspect<Waiters>>()
    },
    Command {
        arity: -1,
        flags: "readonly admin",
        acl_categories: "read admin dangerous slow",
        keys: Keys::NONE,
        summary: c"Returns the locks of the selected database with the most waiters.",
        complexity: c"O(N), where N is the number of locks with waiters on the server",
        arguments: || with(&[], Queues::OPTIONS),
        ..of::<ListQueues>()
    },
    Command {
        arity: -2,
        flags: "admin allow-loading allow-stale",
        acl_categories: "admin dangerous slow",
        keys: Keys::NONE,
        summary: c"Returns or deletes the entries of the log of long waits.",
        complexity: c"O(N), where N is the number of entries listed or dropped",
        arguments: slow_log,
        ..of::<SlowLogCommand>()
    },
];
