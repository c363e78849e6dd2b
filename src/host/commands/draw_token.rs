//! Executes LOCK.FENCE.

use super::error_reply;
use crate::command::Fence;
use crate::core::{Error, format_integer};
use crate::host::alarm;
use crate::host::granting::overdue::process_overdue;
use crate::host::keys::{effects, lock_key};
use crate::host::replies::delivery::mark_holder_notified;
use crate::host::state::{Context, Locks, Step};
use crate::server::{self, Arguments, Mode, OwnedString, RunCommand};

/// The command LOCK.FENCE.
pub struct Draw;

impl RunCommand<Locks> for Draw {
    const NAME: &'static str = Fence::NAME;

    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        let drawn = draw(ctx, arguments);
        alarm::set(ctx.server());
        match drawn {
            Ok(token) => ctx.reply_integer(token),
            Err(error) => error_reply::error(ctx, Fence::NAME, error),
        }
    }
}

fn draw(ctx: &mut Context<'_>, arguments: Arguments<'_>) -> Result<i64, Error> {
    let argument = |number| arguments.get(number).ok_or(Error::Arity);
    let (lock, caller, counter) = (argument(1)?, argument(2)?, argument(3)?);
    let request = Fence::parse(lock.bytes(), caller.bytes(), counter.bytes())?;
    let mut lock = ctx.open(lock, Mode::Write);
    let mut step = Step::begin(lock.server());
    process_overdue(&mut lock, Some(caller), &mut step);
    request.check_holder(&lock_key::read(&lock, Some(caller), step.now)?)?;
    mark_holder_notified(&lock, caller);
    drop(lock);
    let mut counter = ctx.open(counter, Mode::Write);
    let last = lock_key::read_integer(&counter)?;
    let token = request.draw(last, server::now_us())?;
    debug_assert!(last.is_none_or(|last| token > last), "fencing tokens rise");
    format_integer(token, |digits| effects::set_counter(&mut counter, OwnedString::new(digits).as_ref()));
    Ok(token)
}
