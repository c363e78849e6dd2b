//! How a module describes its commands.

use super::CommandHandler;

/// One command.
pub struct Command {
    /// Lower case, as the server reports it.
    pub name: &'static str,
    pub handler: CommandHandler,
    /// Argument count with the name; negative: at least.
    pub arity: i32,
    /// The server's own words for command flags.
    pub flags: &'static str,
    /// ACL categories, where the server lets a module choose them.
    pub acl_categories: &'static str,
    /// A category of the module's own, where the server lets a module add one.
    pub own_category: &'static str,
    pub keys: Keys,
    pub since: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arguments: Vec<Argument>,
}

impl Command {
    /// A command that takes anything and says nothing of itself, to be filled in.
    pub fn new(name: &'static str, handler: CommandHandler) -> Self {
        let keys = Keys { first: 0, last: 0, step: 0, access: Access::Update };
        let (flags, acl_categories, own_category, since, summary, complexity) = ("", "", "", "", "", "");
        let (arity, arguments) = (-1, Vec::new());
        Self { name, handler, arity, flags, acl_categories, own_category, keys, since, summary, complexity, arguments }
    }
}

/// The keys among the arguments of a command, the command name being argument 0.
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
    /// Reads it.
    Read,
    /// Reads it and may replace it.
    Update,
    /// Reads it and may delete it.
    Delete,
}

/// One argument in the words of COMMAND DOCS.
pub struct Argument {
    pub name: &'static str,
    /// The word in front of it, or the word it consists of.
    pub token: Option<&'static str>,
    pub shape: Shape,
    pub optional: bool,
}

/// The form of an argument.
pub enum Shape {
    Key,
    Text,
    Integer,
    /// Just its token.
    Word,
    OneOf(Vec<Argument>),
}
