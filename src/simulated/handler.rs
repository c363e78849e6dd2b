//! What runs when a client sends a command.

use std::any::Any;

use super::context::Context;
use super::module::Module;
use super::string::Arguments;

/// The server's entry to a command.
#[derive(Clone, Copy)]
pub struct CommandHandler(fn(&mut dyn Any, Arguments<'_>));

/// What runs when a client sends a command.
pub trait RunCommand<M: Module> {
    /// The command in lower case.
    const NAME: &'static str;

    /// Runs it, and replies unless the client is blocked.
    fn run(ctx: &mut Context<'_, M>, arguments: Arguments<'_>);
}

/// The server's entry to the command `C`.
pub const fn handler<M: Module, C: RunCommand<M>>() -> CommandHandler {
    CommandHandler(|ctx, arguments| {
        if let Some(ctx) = ctx.downcast_mut::<Context<'static, M>>() {
            C::run(ctx, arguments);
        }
    })
}

impl CommandHandler {
    pub(super) fn run<M: Module>(self, mut ctx: Context<'static, M>, arguments: Arguments<'_>) {
        (self.0)(&mut ctx, arguments);
    }
}
