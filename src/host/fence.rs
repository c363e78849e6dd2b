//! Executes LOCK.FENCE.

use super::effect;
use super::grants::mark_holder_notified;
use super::lock_key;
use super::overdue::process_overdue;
use super::reply;
use super::state::{Context, Locks};
use super::timer;
use crate::command::Fence;
use crate::core::{Error, format_integer};
use crate::server::{self, Arguments, Mode, OwnedString, RunCommand};

/// The command LOCK.FENCE.
pub struct Draw;

impl RunCommand<Locks> for Draw {
    const NAME: &'static str = Fence::NAME;

    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        match draw(ctx, arguments) {
            Ok(token) => ctx.reply_integer(token),
            Err(error) => reply::error(ctx, Fence::NAME, error),
        }
    }
}

fn draw(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<i64, Error> {
    let argument = |number| arguments.get(number).ok_or(Error::Arity);
    let (lock, caller, counter) = (argument(1)?, argument(2)?, argument(3)?);
    let request = Fence::parse(lock.bytes(), caller.bytes(), counter.bytes())?;
    let mut lock = ctx.open(lock, Mode::Write);
    let now = server::now_ms();
    process_overdue(&mut lock, Some(caller), now);
    timer::set();
    request.check_holder(&lock_key::read_for(&lock, Some(caller), now)?)?;
    mark_holder_notified(&lock, caller);
    drop(lock);
    let mut counter = ctx.open(counter, Mode::Write);
    let token = request.draw(lock_key::read_integer(&counter)?, server::now_us())?;
    format_integer(token, |digits| effect::set_counter(&mut counter, OwnedString::new(digits).as_ref()));
    Ok(token)
}
