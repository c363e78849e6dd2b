//! The table of all commands, with everything that is registered with the server.

use super::{Acquire, Extend, Fence, Info, Inspection, LockCommand, Queues, Reenter, Release, Share, Waiters};

/// The description of one command.
pub struct Command {
    /// The name, in lower case as the server reports it.
    pub name: &'static str,
    pub id: CommandId,
    /// The number of arguments, including the name. A negative number is a minimum.
    pub arity: i32,
    /// The command flags, in the server's own words.
    pub flags: &'static str,
    /// The ACL categories, on servers that let a module choose them. [`ACL_CATEGORY`] is added to them.
    pub acl_categories: &'static str,
    /// The keys among the arguments.
    pub keys: Keys,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arguments: &'static [Argument],
}

/// Identifies a command. The host maps it to the function that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandId {
    Acquire,
    Reenter,
    Share,
    Release,
    Extend,
    Fence,
    Info,
    Waiters,
    Queues,
}

/// The keys among the arguments, of which the command name is number 0.
///
/// All keys are in one range, so that cluster clients find them without a request to the server. A command without keys has
/// zeroes.
pub struct Keys {
    pub first: i32,
    pub last: i32,
    pub step: i32,
    pub access: Access,
}

/// What a command does with the value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the value.
    Read,
    /// Reads the value and may replace it.
    Update,
    /// Reads the value and may delete it.
    Delete,
}

/// An argument, in the terms of COMMAND DOCS.
pub struct Argument {
    pub name: &'static str,
    /// The word before the argument, or the only word of the argument.
    pub token: Option<&'static str>,
    pub shape: Shape,
    pub optional: bool,
}

/// The type of an argument.
pub enum Shape {
    Key,
    Text,
    Integer,
    /// A word without a value: just its token.
    Word,
    OneOf(&'static [Argument]),
}

/// The version that introduced the commands.
pub const SINCE: &str = "0.1.0";

/// The ACL category of all commands, on servers that let a module add one.
pub const ACL_CATEGORY: &str = "lock";

/// Returns the keys of a command whose only key is the lock, its first argument.
const fn lock(access: Access) -> Keys {
    Keys { first: 1, last: 1, step: 1, access }
}

/// The range of a command without keys.
const NO_KEYS: Keys = Keys { first: 0, last: 0, step: 0, access: Access::Read };

const KEY: Argument = Argument { name: "key", token: None, shape: Shape::Key, optional: false };
const TOKEN: Argument = Argument { name: "token", token: None, shape: Shape::Text, optional: false };
const OWNER: Argument = Argument { name: "owner", token: None, shape: Shape::Text, optional: false };
const LEASE_FORMS: &[Argument] = &[
    Argument { name: "seconds", token: Some("EX"), shape: Shape::Integer, optional: false },
    Argument { name: "milliseconds", token: Some("PX"), shape: Shape::Integer, optional: false },
];
const LEASE: Argument = Argument { name: "lease", token: None, shape: Shape::OneOf(LEASE_FORMS), optional: true };
const BLOCK: Argument = Argument { name: "timeout", token: Some("BLOCK"), shape: Shape::Integer, optional: true };
const HOLD: Argument = Argument { name: "hold", token: Some("HOLD"), shape: Shape::Integer, optional: true };
const SESSION: Argument = Argument { name: "session", token: Some("SESSION"), shape: Shape::Word, optional: true };

const COUNT: Argument = Argument { name: "count", token: Some("COUNT"), shape: Shape::Integer, optional: true };
const NOTIFY: Argument = Argument { name: "channel", token: Some("NOTIFY"), shape: Shape::Text, optional: true };

/// All commands.
pub const COMMANDS: &[Command] = &[
    Command {
        name: Acquire::NAME,
        id: CommandId::Acquire,
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        keys: lock(Access::Update),
        summary: "Takes a mutex, or waits in line for it.",
        complexity: "O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[
            KEY,
            TOKEN,
            LEASE,
            BLOCK,
            Argument { name: "condition", token: Some("NX"), shape: Shape::Word, optional: true },
            SESSION,
            NOTIFY,
        ],
    },
    Command {
        name: Reenter::NAME,
        id: CommandId::Reenter,
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        keys: lock(Access::Update),
        summary: "Takes a re-entrant lock or one more hold of it, or waits in line for it.",
        complexity: "O(1); O(log(N)) to wait, where N is the number of requests that wait on the server",
        arguments: &[KEY, OWNER, LEASE, BLOCK, HOLD, SESSION, NOTIFY],
    },
    Command {
        name: Share::NAME,
        id: CommandId::Share,
        arity: -3,
        flags: "write deny-oom fast blocking",
        acl_categories: "write fast blocking",
        keys: lock(Access::Update),
        summary: "Takes a share of a lock, as a reader or one of a limited number, or waits in line for it.",
        complexity: "O(log(N)), where N is the number of shares of the lock and of requests that wait on the server",
        arguments: &[
            KEY,
            TOKEN,
            LEASE,
            Argument { name: "limit", token: Some("LIMIT"), shape: Shape::Integer, optional: true },
            BLOCK,
            SESSION,
            NOTIFY,
        ],
    },
    Command {
        name: Release::NAME,
        id: CommandId::Release,
        arity: -3,
        flags: "write fast",
        acl_categories: "write fast",
        keys: lock(Access::Delete),
        summary: "Gives up one hold of a lock, or a share, and hands a free lock to the next waiter.",
        complexity: "O(1); O(log(N)) to hand over or to give up a share, where N is the number of shares of the lock and of requests that wait on the server",
        arguments: &[KEY, TOKEN, HOLD, LEASE],
    },
    Command {
        name: Extend::NAME,
        id: CommandId::Extend,
        arity: -5,
        flags: "write fast",
        acl_categories: "write fast",
        keys: lock(Access::Update),
        summary: "Sets or lengthens the lease of a lock that the caller holds.",
        complexity: "O(1)",
        arguments: &[
            KEY,
            TOKEN,
            Argument { name: "lease", token: None, shape: Shape::OneOf(LEASE_FORMS), optional: false },
            Argument { name: "add", token: Some("ADD"), shape: Shape::Word, optional: true },
        ],
    },
    Command {
        name: Fence::NAME,
        id: CommandId::Fence,
        arity: 4,
        flags: "write deny-oom fast",
        acl_categories: "write fast",
        keys: Keys { first: 1, last: 3, step: 2, access: Access::Update },
        summary: "Draws a fencing token, higher than every earlier one, for the present holder.",
        complexity: "O(1)",
        arguments: &[KEY, TOKEN, Argument { name: "counter", token: None, shape: Shape::Key, optional: false }],
    },
    Command {
        name: Info::NAME,
        id: CommandId::Info,
        arity: 2,
        flags: "readonly fast",
        acl_categories: "read fast",
        keys: lock(Access::Read),
        summary: "Tells who holds a lock, for how long, and how many wait.",
        complexity: "O(1)",
        arguments: &[KEY],
    },
    Command {
        name: Waiters::NAME,
        id: CommandId::Waiters,
        arity: -2,
        flags: "readonly",
        acl_categories: "read slow",
        keys: lock(Access::Read),
        summary: "Lists who waits for a lock, first in line first.",
        complexity: "O(N), where N is the number of waiters listed",
        arguments: &[KEY, COUNT],
    },
    Command {
        name: Queues::NAME,
        id: CommandId::Queues,
        arity: -1,
        flags: "readonly admin",
        acl_categories: "read admin dangerous slow",
        keys: NO_KEYS,
        summary: "Lists the most contended locks of the selected database.",
        complexity: "O(N), where N is the number of locks that are waited for on the server",
        arguments: &[COUNT],
    },
];
