//! The description of a module's commands.

use super::CommandHandler;

/// The description of one command.
pub struct Command {
    /// The name, in lower case as the server reports it.
    pub name: &'static str,
    pub handler: CommandHandler,
    /// The number of arguments, including the name. A negative number is a minimum.
    pub arity: i32,
    /// The command flags, in the server's own words.
    pub flags: &'static str,
    /// The ACL categories, on servers that let a module choose them.
    pub acl_categories: &'static str,
    /// A category of the module's own, on servers that let a module add one.
    pub own_category: &'static str,
    pub keys: Keys,
    pub since: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arguments: Vec<Argument>,
}

impl Command {
    /// Creates the description of a command with any number of arguments, no flags and no documentation.
    pub fn new(name: &'static str, handler: CommandHandler) -> Self {
        let keys = Keys { first: 0, last: 0, step: 0, access: Access::Update };
        let (flags, acl_categories, own_category, since, summary, complexity) = ("", "", "", "", "", "");
        let (arity, arguments) = (-1, Vec::new());
        Self { name, handler, arity, flags, acl_categories, own_category, keys, since, summary, complexity, arguments }
    }
}

/// The keys among the arguments, of which the command name is number 0. All 0: there are none.
#[derive(Clone, Copy)]
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
    /// The word in front of the argument, or the word that it consists of.
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
    OneOf(Vec<Argument>),
}
