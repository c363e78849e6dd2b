//! A second module on `redis_lock::server`, which shows that the layer knows nothing of locks. A gate is a key: who comes to
//! a closed one waits until it is gone.
//!
//!     GATE.CLOSE key      closes the gate
//!     GATE.PASS key       waits until it is open, and answers how many have passed since the module was loaded

use std::ffi::CStr;
use std::num::NonZeroU64;

use redis_lock::server::{
    self, Access, Arguments, BlockedClient, BlockedClientId, Command, CommandHandler, Event, EventName, Keys,
    MainThread, Mode, Module, OwnedString, Replier, RunCommand, StringRef,
};

struct Gate;
type Context<'c> = server::Context<'c, Gate>;

/// Who waits: the gate (empty: it is open), and the client once it is blocked. Ids count from 1.
#[derive(Default)]
struct State {
    waiting: Vec<(Vec<u8>, Option<BlockedClient>)>,
    passed: u64,
}

server::module_state!(STATE: State = State { waiting: Vec::new(), passed: 0 });

struct Close;
impl RunCommand<Gate> for Close {
    const NAME: &'static str = "gate.close";
    fn run(ctx: &mut Context<'_>, arguments: Arguments<'_>) {
        let Some(name) = arguments.get(1) else { return ctx.reply_error("ERR syntax error") };
        let (mut key, closed) = (ctx.open(name, Mode::Write), OwnedString::new(b"closed"));
        key.set_string(closed.as_ref(), None);
        let replicated = key.replicate_set(closed.as_ref(), None);
        key.signal(&[Event::SET]);
        drop(key);
        if replicated { ctx.reply_nil() } else { ctx.reply_error("ERR not replicated") }
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
            return ctx.reply_integer(pass());
        }
        let client = key.block(id(STATE.with(|state| state.waiting.len()) + 1));
        drop(key);
        if client.is_none() {
            return ctx.reply_nil();
        }
        STATE.with(|state| state.waiting.push((name.bytes().to_vec(), client)));
    }
}

fn id(number: usize) -> BlockedClientId {
    BlockedClientId(NonZeroU64::new(number as u64).expect("ids count from 1"))
}

fn pass() -> i64 {
    STATE.with(|state| state.passed += 1);
    STATE.with(|state| state.passed as i64)
}

fn command(name: &'static str, handler: CommandHandler) -> Command {
    let keys = Keys { first: 1, last: 1, step: 1, access: Access::Update };
    Command { arity: 2, flags: "write", keys, ..Command::new(name, handler) }
}

impl Module for Gate {
    const NAME: &'static CStr = c"gate";
    const VERSION: &'static str = "0.1.0";
    type State = State;

    fn state() -> &'static MainThread<State> {
        &STATE
    }
    fn new_state() -> State {
        State::default()
    }
    fn blocked_client(state: &mut State, id: BlockedClientId) -> Option<&mut BlockedClient> {
        state.waiting.get_mut(id.0.get() as usize - 1)?.1.as_mut()
    }
    fn commands() -> Vec<Command> {
        vec![
            command(Close::NAME, server::handler::<Gate, Close>()),
            command(Pass::NAME, server::handler::<Gate, Pass>()),
        ]
    }
    fn info(state: &mut State) -> Vec<(String, u64)> {
        vec![("passed".to_owned(), state.passed)]
    }
    fn key_event(_: &Context<'_>, event: EventName<'_>, key: StringRef<'_>) {
        let opened = |name: &[u8]| event.bytes() == b"del" && name == key.bytes();
        STATE
            .with(|state| state.waiting.iter_mut().filter(|(name, _)| opened(name)).for_each(|(name, _)| name.clear()));
        server::run_timer_soon::<Gate>();
    }
    fn timer(_: &mut Context<'_>) {
        let open: Vec<bool> = STATE.with(|state| state.waiting.iter().map(|(name, _)| name.is_empty()).collect());
        (1..).zip(open).filter(|(_, open)| *open).for_each(|(number, _)| server::unblock::<Gate>(id(number)));
    }
    fn answer(reply: &mut Replier<'_>, _: BlockedClientId) {
        reply.integer(pass());
    }
    fn freed(_: &Context<'_>, id: BlockedClientId, _: bool) {
        STATE.with(|state| state.waiting[id.0.get() as usize - 1].1 = None);
    }
}

server::entry_points!(Gate);
