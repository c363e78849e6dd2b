//! The commands of the module: how they run, and how the server learns of them.

mod register;

use std::ffi::c_int;

use redis_module::raw;

use super::CommandHandler;
use super::api::OK;
use super::channels;
use super::context::Context;
use super::module::Module;
use super::panics::{INTERNAL_ERROR, catch_panic};
use super::state::state;
use super::string::Arguments;

pub use register::has_own_acl_categories;
pub(super) use register::register;

/// The code that runs when a client sends a command.
pub trait RunCommand<M: Module> {
    /// The name of the command in lower case.
    const NAME: &'static str;

    /// Runs the command. Replies to the client, or blocks it.
    fn run(ctx: &mut Context<'_, M>, arguments: Arguments<'_>);
}

/// Returns the function by which the server calls the command `C`.
pub const fn handler<M: Module, C: RunCommand<M>>() -> CommandHandler {
    CommandHandler(Some(on_command::<M, C>))
}

unsafe extern "C" fn on_command<M: Module, C: RunCommand<M>>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own context and arguments, valid while this command runs.
    let (mut ctx, arguments) = unsafe { (Context::<M>::new(ctx), Arguments::new(argv, argc)) };
    ctx.may_block = true;
    let panicked = catch_panic(C::NAME, true, |_| {
        channels::command_begins(&ctx);
        C::run(&mut ctx, arguments);
        false
    });
    state().is_inner_command.set(false);
    // A command replies last, so a command that panicked has not replied. A blocked client is replied to when it is unblocked.
    if panicked && ctx.may_block {
        ctx.reply_error(INTERNAL_ERROR);
    }
    OK
}
