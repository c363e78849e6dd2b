//! Runs the acts: as commands, and as errands of the timer.

use std::mem;

use redis_lock::server::{self, Access, Arguments, Command, Keys, RunCommand, handler, now_ms};

use super::Witness;
use super::acts::{self, Context, Outcome, Words};
use super::state::{note, with};

type Act = fn(&mut Context<'_>, Words<'_>) -> Outcome;

/// Lists the acts. Each one becomes a command with these command flags and this number of keys, and `find` returns it by its
/// name. Only the command that blocks needs to name its key: the server replies to a blocked client when the slot of the key
/// moves.
macro_rules! acts {
    ($($name:literal: $flags:literal, $keys:literal => $act:ident,)*) => {
        /// The descriptions of all commands.
        pub const COMMANDS: &[Command] = &[Command::new(Trace::NAME, handler::<Witness, Trace>()), $({
                struct Now;
                impl RunCommand<Witness> for Now {
                    const NAME: &'static str = concat!("witness.", $name);
                    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
                        reply_with(acts::$act, ctx, arguments);
                    }
                }
                let keys = Keys { first: $keys, last: $keys, step: $keys, access: Access::Update };
                Command { flags: $flags, keys, ..Command::new(Now::NAME, handler::<Witness, Now>()) }
            }),*];

        fn find(name: &[u8]) -> Option<Act> {
            [$(($name, acts::$act as Act)),*].into_iter().find(|(own, _)| own.as_bytes() == name).map(|(_, act)| act)
        }
    };
}

acts! {
    "below": "", 0 => below,
    "block": "", 1 => block,
    "brink": "write", 0 => brink,
    "call": "write", 0 => call,
    "cron": "", 0 => cron,
    "del": "write", 0 => del,
    "enter": "", 0 => enter,
    "expire": "write", 0 => expire,
    "flags": "", 0 => flags,
    "hset": "write", 0 => hset,
    "later": "", 0 => later,
    "listen": "", 0 => listen,
    "listen-to-sorted-sets": "", 0 => listen_to_sorted_sets,
    "may-publish": "", 0 => may_publish,
    "may-publish-on": "", 0 => may_publish_on,
    "open": "", 0 => open,
    "publish": "", 0 => publish,
    "report": "", 0 => report,
    "set": "write", 0 => set,
    "slot": "", 0 => slot,
    "subscribers": "", 0 => subscribers,
    "takes-writes": "", 0 => accepts_writes,
    "unblock": "", 0 => unblock,
    "welcome": "", 0 => welcome,
    "zadd": "write", 0 => zadd,
    "zrem": "write", 0 => zrem,
    "zscore": "", 0 => zscore,
}

fn reply_with(act: Act, ctx: &mut Context<'_>, arguments: Arguments<'_>) {
    let words: Vec<Vec<u8>> = arguments.arguments_from(1).map(<[u8]>::to_vec).collect();
    if let Some(outcome) = act(ctx, &words) {
        ctx.reply_bytes(outcome.as_bytes());
    }
}

/// `WITNESS.TRACE`: returns the trace and empties it.
struct Trace;

impl RunCommand<Witness> for Trace {
    const NAME: &'static str = "witness.trace";

    fn run(ctx: &mut Context<'_>, _: Arguments<'_>) {
        let lines = with(ctx.server(), |state| mem::take(&mut state.lines));
        ctx.reply_array(lines.len());
        lines.iter().for_each(|line| ctx.reply_bytes(line.as_bytes()));
    }
}

/// Runs the errands that are due. The timer may fire early, which adds no line to the trace.
pub fn run_errands(ctx: &mut Context<'_>) {
    for errand in with(ctx.server(), |state| state.take_due(now_ms())) {
        ctx.select_db(errand.db);
        let outcome =
            errand.words.split_first().and_then(|(name, words)| find(&name.to_ascii_lowercase())?(ctx, words));
        note(ctx.server(), outcome.map_or("timer".to_owned(), |outcome| format!("timer: {outcome}")));
    }
    if let Some(due) = with(ctx.server(), |state| state.next_due()) {
        server::set_timer::<Witness>(due);
    }
}
