//! The functions of a module that run its commands.

use super::command_handler::CommandHandler;
use super::context::Context;
use super::module::Module;
use super::string::Arguments;

/// A command of the module.
pub trait RunCommand<M: Module> {
    /// The name of the command, in lower case.
    const NAME: &'static str;

    /// Runs the command. It replies unless it blocks the client.
    fn run(ctx: &mut Context<'_, M>, arguments: Arguments<'_>);
}

/// Returns the function that the server calls for the command `C`.
pub const fn handler<M: Module, C: RunCommand<M>>() -> CommandHandler {
    CommandHandler(|ctx, arguments| {
        if let Some(ctx) = ctx.downcast_mut::<Context<'static, M>>() {
            C::run(ctx, arguments);
        }
    })
}

/// Calls the function of a command of the module `M`.
pub(super) fn run<M: Module>(handler: CommandHandler, mut ctx: Context<'static, M>, arguments: Arguments<'_>) {
    (handler.0)(&mut ctx, arguments);
}
