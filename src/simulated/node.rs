//! Driving a simulated server from outside.

use std::marker::PhantomData;
use std::mem;

use super::context::{Context, Replier};
use super::event::EventName;
use super::module::Module;
use super::setting::Setting;
use super::string::{Arguments, StringRef};
use super::ticket::Ticket;
use super::world::{self, Reply};
use super::{ClientId, UnixMs};

/// One simulated server with module `M` in it.
pub struct Node<M> {
    number: usize,
    module: PhantomData<fn() -> M>,
}

impl<M: Module> Node<M> {
    /// So many servers, each with nothing in it. Those of before are gone.
    pub fn new_ones(count: usize) -> Vec<Self> {
        world::forget();
        super::main_thread::forget();
        super::setting::forget();
        (0..count).map(|number| Self { number, module: PhantomData }).collect()
    }

    /// Runs one command of a client, and what the server does until the end of the loop round. Returns every reply made in
    /// it, with the client that it was made to.
    pub fn run(&self, client: ClientId, line: &str) -> Vec<(ClientId, Reply)> {
        world::switch_to(self.number);
        let words: Vec<Vec<u8>> = line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
        let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let command = M::commands().into_iter().find(|command| command.name.as_bytes() == name);
        match command {
            Some(command) => command.handler.run::<M>(Context::new(client, 0), Arguments(&words)),
            None if name == b"del" => self.delete(words.get(1).cloned().unwrap_or_default()),
            None if name == b"config" => world::with(|world| world.replies.push((client, config_set::<M>(&words)))),
            None => world::with(|world| world.replies.push((client, Reply::Error("ERR unknown command".to_owned())))),
        }
        self.end_round()
    }

    /// Lets time pass, millisecond by millisecond. Returns every reply made meanwhile.
    pub fn pass(&self, ms: UnixMs) -> Vec<(ClientId, Reply)> {
        world::switch_to(self.number);
        let mut replies = Vec::new();
        for _ in 0..ms {
            world::with(|world| world.now_ms = world.now_ms.saturating_add(1));
            replies.extend(self.end_round());
        }
        replies
    }

    /// What replicas and the AOF were told since the last call, as command lines.
    pub fn replicated(&self) -> Vec<String> {
        world::switch_to(self.number);
        let commands = world::with(|world| mem::take(&mut world.replicated));
        let line =
            |words: &Vec<Vec<u8>>| words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        commands.iter().map(line).collect()
    }

    fn delete(&self, key: Vec<u8>) {
        if world::with(|world| world.keys.remove(&(0, key.clone()))).is_some() {
            M::key_event(&Context::new(0, 0), EventName("del"), StringRef(&key));
        }
    }

    fn end_round(&self) -> Vec<(ClientId, Reply)> {
        let is_due = || world::with(|world| world.fires_at.take_if(|at| *at <= world.now_ms).is_some());
        while is_due() {
            M::timer(&mut Context::new(0, 0));
        }
        for (ticket, client) in world::with(|world| mem::take(&mut world.unblocked)) {
            self.let_go(ticket, client);
        }
        world::with(|world| mem::take(&mut world.replies))
    }

    fn let_go(&self, ticket: Ticket, client: ClientId) {
        M::state().with(|state| M::blocked_client(state, ticket).map(|blocked| blocked.answered = true));
        M::answer(&mut Replier::new(client), ticket);
        M::freed(&Context::new(client, 0), ticket, true);
    }
}

/// `CONFIG SET module.setting value`. Settings are the module's, so all nodes share them.
fn config_set<M: Module>(words: &[Vec<u8>]) -> Reply {
    let [_, _, name, value] = words else { return Reply::Error("ERR wrong number of arguments".to_owned()) };
    let own_name = [M::NAME.to_bytes(), b"."].concat();
    let is_named = |setting: &&&Setting| name.strip_prefix(&*own_name) == Some(setting.name.to_bytes());
    let value = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
    match M::SETTINGS.iter().find(is_named).zip(value) {
        Some((setting, value)) if (setting.min..=setting.max).contains(&value) => {
            setting.set(value);
            Reply::Bytes(b"OK".to_vec())
        }
        _ => Reply::Error("ERR CONFIG SET failed".to_owned()),
    }
}
