//! Translates the table of commands into the types of the layer `server`.

use super::draw_token::Draw;
use super::execute::Execute;
use super::inspect::Inspect;
use super::list_queues::ListQueues;
use crate::command::table::{self, ACL_CATEGORY, COMMANDS, CommandId, SINCE};
use crate::command::{Acquire, Extend, Info, Reenter, Release, Share, Waiters};
use crate::host::state::Locks;
use crate::server::{self, CommandHandler, handler};

/// Returns the descriptions of all commands.
pub fn commands() -> Vec<server::Command> {
    COMMANDS.iter().map(command).collect()
}

fn handler_of(id: CommandId) -> CommandHandler {
    match id {
        CommandId::Acquire => handler::<Locks, Execute<Acquire>>(),
        CommandId::Reenter => handler::<Locks, Execute<Reenter>>(),
        CommandId::Share => handler::<Locks, Execute<Share>>(),
        CommandId::Release => handler::<Locks, Execute<Release>>(),
        CommandId::Extend => handler::<Locks, Execute<Extend>>(),
        CommandId::Fence => handler::<Locks, Draw>(),
        CommandId::Info => handler::<Locks, Inspect<Info>>(),
        CommandId::Waiters => handler::<Locks, Inspect<Waiters>>(),
        CommandId::Queues => handler::<Locks, ListQueues>(),
    }
}

fn command(command: &'static table::Command) -> server::Command {
    let table::Command { name, arity, flags, acl_categories, summary, complexity, .. } = *command;
    server::Command {
        name,
        handler: handler_of(command.id),
        arity,
        flags,
        acl_categories,
        own_category: ACL_CATEGORY,
        keys: keys(&command.keys),
        since: SINCE,
        summary,
        complexity,
        arguments: command.arguments.iter().map(argument).collect(),
    }
}

fn keys(keys: &table::Keys) -> server::Keys {
    let table::Keys { first, last, step, access } = *keys;
    let access = match access {
        table::Access::Read => server::Access::Read,
        table::Access::Update => server::Access::Update,
        table::Access::Delete => server::Access::Delete,
    };
    server::Keys { first, last, step, access }
}

fn argument(argument: &'static table::Argument) -> server::Argument {
    let table::Argument { name, token, optional, .. } = *argument;
    let shape = match argument.shape {
        table::Shape::Key => server::Shape::Key,
        table::Shape::Text => server::Shape::Text,
        table::Shape::Integer => server::Shape::Integer,
        table::Shape::Word => server::Shape::Word,
        table::Shape::OneOf(choices) => server::Shape::OneOf(choices.iter().map(self::argument).collect()),
    };
    server::Argument { name, token, shape, optional }
}
