//! Runs LOCK.FENCE.

use std::ffi::c_int;

use redis_module::raw;

use super::alarm;
use super::clock;
use super::context::Context;
use super::effect;
use super::execute::{answer, holder_is_told};
use super::handover;
use super::key::{Key, Mode};
use super::reply;
use super::text::{Arguments, OwnedText};
use crate::command::Fence;
use crate::core::{Refusal, format_integer};

/// The server's entry to LOCK.FENCE.
pub unsafe extern "C" fn run(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's own context and arguments, valid while this command runs.
    let (ctx, arguments) = unsafe { (Context::new(ctx), Arguments::new(argv, argc)) };
    answer(ctx, Fence::NAME, || draw(ctx, arguments).map(|token| reply::integer(ctx, token)))
}

fn draw(ctx: Context<'_>, arguments: Arguments<'_>) -> Result<i64, Refusal> {
    let (lock, caller, counter) = (arguments.text(1)?, arguments.text(2)?, arguments.text(3)?);
    let request = Fence::parse(lock.bytes(), caller.bytes(), counter.bytes())?;
    let mut lock = Key::open(ctx, lock, Mode::Write);
    handover::settle(&mut lock, clock::now());
    alarm::set();
    let mut counter = Key::open(ctx, counter, Mode::Write);
    let token = request.draw(&lock.read()?, counter.integer()?, clock::now_us())?;
    holder_is_told(&lock);
    format_integer(token, |digits| effect::set_counter(&mut counter, OwnedText::new(ctx, digits).text()));
    Ok(token)
}
