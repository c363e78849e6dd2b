//! The description of a module's commands.

use std::ffi::CStr;

use super::CommandHandler;

/// The description of one command.
#[derive(Clone, Copy)]
pub struct Command {
    /// The name, in lower case as the server reports it.
    pub name: &'static str,
    /// The function that runs the command.
    pub handler: CommandHandler,
    /// The number of arguments, including the name. A negative number is a minimum.
    pub arity: i32,
    /// The command flags, as the API names them, separated by spaces.
    pub flags: &'static str,
    /// The ACL categories, separated by spaces. Servers that do not let a module choose them ignore them.
    pub acl_categories: &'static str,
    /// An ACL category of the module's own. Servers that do not let a module add one ignore it.
    pub own_category: &'static str,
    /// The positions of the keys.
    pub keys: Keys,
    /// The version of the module that has added the command.
    pub since: &'static CStr,
    /// One line about the command, for COMMAND DOCS.
    pub summary: &'static CStr,
    /// The time complexity, for COMMAND DOCS.
    pub complexity: &'static CStr,
    /// Returns the arguments without the command name, for COMMAND DOCS.
    pub arguments: fn() -> Vec<Argument>,
}

impl Command {
    /// Creates the description of a command with any number of arguments, no keys, no flags and no documentation.
    pub const fn new(name: &'static str, handler: CommandHandler) -> Self {
        let (flags, acl_categories, own_category) = ("", "", "");
        let (since, summary, complexity, arguments) = (c"", c"", c"", Vec::new as fn() -> Vec<Argument>);
        let (arity, keys) = (-1, Keys::NONE);
        Self { name, handler, arity, flags, acl_categories, own_category, keys, since, summary, complexity, arguments }
    }
}

/// The positions of the keys among the arguments, of which the command name is number 0.
#[derive(Clone, Copy)]
pub struct Keys {
    /// The first key.
    pub first: i32,
    /// The last key. A negative number counts from the end.
    pub last: i32,
    /// The distance from one key to the next one.
    pub step: i32,
    /// The access to the values of the keys.
    pub access: Access,
}

impl Keys {
    /// The keys of a command without keys.
    pub const NONE: Self = Self { first: 0, last: 0, step: 0, access: Access::Read };
}

/// The access of a command to the value of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the value.
    Read,
    /// Reads the value and may replace it.
    Update,
    /// Reads the value and may delete it.
    Delete,
}

/// An argument, as COMMAND DOCS shows it.
#[derive(Clone)]
pub struct Argument {
    /// The name of the argument.
    pub name: &'static CStr,
    /// The word in front of the value, or the word that the argument consists of.
    pub token: Option<&'static CStr>,
    /// The type of the argument.
    pub shape: Shape,
    /// Whether the argument can be left out.
    pub optional: bool,
}

/// The type of an argument.
#[derive(Clone)]
pub enum Shape {
    /// The name of a key.
    Key,
    /// Any bytes.
    Text,
    /// A decimal integer.
    Integer,
    /// A token without a value.
    Word,
    /// One of several arguments.
    OneOf(Vec<Argument>),
    /// All of several arguments.
    Block(Vec<Argument>),
}
