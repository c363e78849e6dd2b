//! A minimal module on `redis_lock::server`. It shows that the layer knows nothing of locks, and that a module on it needs no
//! unsafe code. A key is a gate, which is closed while the key exists.
//!
//! ```text
//! GATE.CLOSE key      closes the gate
//! GATE.PASS key       waits until the gate is open; replies with the number of clients that have passed since the module was
//!                     loaded, or with nil after gate.max-wait-ms milliseconds (0: no limit)
//! ```
//!
//! It uses what a module needs most: commands, blocked clients, the timer, key events, a setting and a section of INFO.

use std::ffi::CStr;
use std::num::NonZeroU64;

use redis_lock::server::{
    self, Access, Arguments, BlockedClient, BlockedClientId, Command, Event, Keys, MainThread, Mode, Module,
    OwnedString, Replier, RunCommand, Server, Setting, StringRef, UnixMs, handler, now_ms,
};

struct Gate;
type Context<'c> = server::Context<'c, Gate>;

/// The longest wait in milliseconds, 0 for no limit.
static MAX_WAIT_MS: Setting = Setting::new(c"max-wait-ms", 0, 0, 3_600_000);

/// A client that waits, or has waited. Its id is its position in the list, counted from 1.
struct Waiter {
    gate: Vec<u8>,
    is_open: bool,
    deadline: Option<UnixMs>,
    /// `None` after the server has freed the client.
    client: Option<BlockedClient>,
}

#[derive(Default)]
struct State {
    waiters: Vec<Waiter>,
    passed: u64,
}

server::module_state!(STATE: State = State { waiters: Vec::new(), passed: 0 });

struct Close;
impl RunCommand<Gate> for Close {
    const NAME: &'static str = "gate.close";
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        let Some(name) = arguments.get(1) else { return ctx.reply_error("ERR syntax error") };
        let (mut key, closed) = (ctx.open(name, Mode::Write), OwnedString::new(b"closed"));
        key.set_string(closed.as_ref(), None);
        let is_replicated = key.replicate_set(closed.as_ref(), None);
        key.signal(&[Event::SET]);
        drop(key);
        if is_replicated { ctx.reply_nil() } else { ctx.reply_error("ERR not replicated") }
    }
}

struct Pass;
impl RunCommand<Gate> for Pass {
    const NAME: &'static str = "gate.pass";
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        server::subscribe::<Gate>();
        let Some(name) = arguments.get(1) else { return ctx.reply_error("ERR syntax error") };
        let mut key = ctx.open(name, Mode::Read);
        if key.is_empty() {
            drop(key);
            let passed = pass(ctx.server());
            return ctx.reply_integer(passed);
        }
        let position = STATE.with(key.server(), |state| state.waiters.len());
        let client = key.block(id_at(position));
        drop(key);
        if client.is_none() {
            return ctx.reply_nil(); // In a transaction or a script.
        }
        let deadline = Some(MAX_WAIT_MS.get()).filter(|&ms| ms > 0).map(|ms| now_ms() + ms);
        let waiter = Waiter { gate: name.bytes().to_vec(), is_open: false, deadline, client };
        STATE.with(ctx.server(), |state| state.waiters.push(waiter));
        deadline.into_iter().for_each(server::set_timer::<Gate>);
    }
}

fn id_at(position: usize) -> BlockedClientId {
    BlockedClientId(NonZeroU64::MIN.saturating_add(position as u64))
}

fn position_of(id: BlockedClientId) -> usize {
    id.0.get() as usize - 1
}

/// Counts a client that passes.
fn pass(server: &Server) -> i64 {
    STATE.with(server, |state| {
        state.passed += 1;
        state.passed as i64
    })
}

const fn command<C: RunCommand<Gate>>() -> Command {
    let keys = Keys { first: 1, last: 1, step: 1, access: Access::Update };
    Command { arity: 2, flags: "write", keys, ..Command::new(C::NAME, handler::<Gate, C>()) }
}

impl Module for Gate {
    const NAME: &'static CStr = c"gate";
    const VERSION: &'static str = "0.1.0";
    const COMMANDS: &'static [Command] = &[command::<Close>(), command::<Pass>()];
    const SETTINGS: &'static [&'static Setting] = &[&MAX_WAIT_MS];
    type State = State;

    fn state() -> &'static MainThread<State> {
        &STATE
    }

    fn new_state() -> State {
        State::default()
    }

    fn blocked_client(state: &mut State, id: BlockedClientId) -> Option<&mut BlockedClient> {
        state.waiters.get_mut(position_of(id))?.client.as_mut()
    }

    fn info(state: &mut State) -> Vec<(String, u64)> {
        let waiting = state.waiters.iter().filter(|waiter| waiter.client.is_some()).count();
        vec![("passed".to_owned(), state.passed), ("waiting".to_owned(), waiting as u64)]
    }

    fn key_event(ctx: &Context<'_>, event: &[u8], key: StringRef<'_>) {
        if [b"del".as_slice(), b"expired"].contains(&event) {
            let is_of_key = |waiter: &&mut Waiter| waiter.gate == key.bytes();
            STATE.with(ctx.server(), |state| {
                state.waiters.iter_mut().filter(is_of_key).for_each(|waiter| waiter.is_open = true)
            });
            server::run_timer_soon::<Gate>();
        }
    }

    fn timer(ctx: &mut Context<'_>) {
        let now = now_ms();
        let is_due = |waiter: &Waiter| waiter.is_open || waiter.deadline.is_some_and(|deadline| deadline <= now);
        let due: Vec<usize> = STATE.with(ctx.server(), |state| {
            let waiters = state.waiters.iter().enumerate().filter(|(_, waiter)| waiter.client.is_some());
            waiters.filter(|(_, waiter)| is_due(waiter)).map(|(position, _)| position).collect()
        });
        due.into_iter().for_each(|position| server::unblock::<Gate>(ctx.server_mut(), id_at(position)));
        let waiting = |waiter: &Waiter| waiter.deadline.filter(|&deadline| deadline > now && waiter.client.is_some());
        let next = STATE.with(ctx.server(), |state| state.waiters.iter().filter_map(waiting).min());
        next.into_iter().for_each(server::set_timer::<Gate>);
    }

    fn answer(reply: &mut Replier<'_>, id: BlockedClientId) {
        let is_open = STATE.with(reply.server(), |state| state.waiters[position_of(id)].is_open);
        if is_open { reply.integer(pass(reply.server())) } else { reply.nil() }
    }

    fn freed(ctx: &Context<'_>, id: BlockedClientId, _: bool) {
        STATE.with(ctx.server(), |state| state.waiters[position_of(id)].client = None);
    }
}

server::entry_points!(Gate);
