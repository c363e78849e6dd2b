//! The commands that a server runs while its instructions are counted.

use std::thread::sleep;
use std::time::Duration;

use support::{Client, Library, Reply, Server, Setup, bytes_of};

use crate::protocols::scripts;

/// Longer than a server under callgrind takes for a command.
const APART: Duration = Duration::from_millis(3);

/// A command line and the reply to it, in which `{n}` is the number of the cycle, `{next}` the next one and `{token}` a token of
/// this cycle. The reply is an integer, a status in capital letters, `nil` or text.
pub type Line = (&'static str, &'static str);

/// The modules that a server loads.
#[derive(Clone, Copy)]
pub enum Module {
    None,
    /// One that does nothing but block clients.
    Empty,
    RedisLock,
}

/// A cycle of commands. The server gets each command after its reply to the one before, except in batches.
#[derive(Clone)]
pub struct Workload {
    module: Module,
    prepare: Vec<(Line, u64)>,
    idle: usize,
    waiting: usize,
    batch: usize,
    cycle: Vec<(String, &'static str)>,
}

impl Workload {
    pub fn new(cycle: &[(impl AsRef<str>, &'static str)]) -> Self {
        let cycle = cycle.iter().map(|(line, reply)| (scripts::filled(line.as_ref()), *reply)).collect();
        Self { module: Module::RedisLock, prepare: Vec::new(), idle: 0, waiting: 0, batch: 1, cycle }
    }

    /// Loads that module instead of redis-lock.
    pub fn on(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// Runs a line that number of times before the cycles; it is not counted.
    pub fn prepared_by(mut self, line: Line, times: u64) -> Self {
        self.prepare.push((line, times));
        self
    }

    /// Adds connections that do nothing.
    pub fn with_idle(mut self, connections: usize) -> Self {
        self.idle = connections;
        self
    }

    /// Adds connections that a module blocks, on a key that the cycles do not use.
    pub fn with_waiting(mut self, connections: usize) -> Self {
        self.waiting = connections;
        self
    }

    /// Sends that number of cycles in one write, which the server runs in one iteration of its event loop.
    pub fn in_batches_of(mut self, cycles: usize) -> Self {
        self.batch = cycles;
        self
    }

    pub(super) fn setup(&self, peer: &Library) -> Setup {
        match self.module {
            Module::None => Setup::new().without_module(),
            Module::Empty => Setup::new().without_module().config(&format!("loadmodule {}", peer.path().display())),
            Module::RedisLock => Setup::new(),
        }
    }

    /// Runs the cycles. Returns the other connections, which are still open.
    pub(super) fn drive(&self, server: &Server, client: &mut Client, cycles: u64) -> Vec<Client> {
        // The key exists with and without the module, so that the keyspace is the same.
        client.ok("SET elsewhere held");
        scripts::load(client);
        // The server's timer runs when the server has nothing to do for a millisecond: before there are connections.
        sleep(10 * APART);
        let mut others: Vec<Client> = (0..self.idle + self.waiting).map(|_| server.client()).collect();
        let block = if matches!(self.module, Module::Empty) { "PEER.ACQUIRE" } else { "LOCK.ACQUIRE" };
        for (number, other) in others.iter_mut().take(self.waiting).enumerate() {
            other.send(&bytes_of(&format!("{block} elsewhere {number:032x} BLOCK 0")));
            // The server runs each in an iteration of its own.
            sleep(APART);
        }
        for ((line, reply), times) in &self.prepare {
            (0..*times).for_each(|number| run(client, &filled(line, number), &answer(reply, number)));
        }
        let numbers: Vec<u64> = (0..cycles).collect();
        for batch in numbers.chunks(self.batch) {
            let commands: Vec<(String, Reply)> = batch.iter().flat_map(|&number| self.commands(number)).collect();
            if self.batch == 1 {
                commands.iter().for_each(|(line, reply)| run(client, line, reply));
            } else {
                let lines: Vec<&str> = commands.iter().map(|(line, _)| line.as_str()).collect();
                client.send_together(&lines);
                commands.iter().for_each(|(line, reply)| assert_eq!(client.receive(), *reply, "{line}"));
            }
        }
        let blocked = client.info("clients", "blocked_clients");
        assert_eq!(blocked, Some(self.waiting.to_string()), "clients that wait to the end");
        others
    }

    /// The commands of one cycle.
    fn commands(&self, number: u64) -> impl Iterator<Item = (String, Reply)> + '_ {
        self.cycle.iter().map(move |(line, reply)| (filled(line, number), answer(reply, number)))
    }
}

/// A cycle with another reply does not do the work that is to be counted.
fn run(client: &mut Client, line: &str, reply: &Reply) {
    assert_eq!(client.run(line), *reply, "{line}");
}

fn filled(line: &str, number: u64) -> String {
    // 32 hexadecimal digits, as redis-py's tokens.
    let token = (u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let line = line.replace("{token}", &format!("{token:032x}"));
    line.replace("{n}", &number.to_string()).replace("{next}", &(number + 1).to_string())
}

fn answer(reply: &str, number: u64) -> Reply {
    let reply = filled(reply, number);
    match (reply.as_str(), reply.parse()) {
        (_, Ok(number)) => Reply::Int(number),
        ("nil", _) => Reply::Nil,
        (text, _) if text.bytes().all(|byte| byte.is_ascii_uppercase()) => Reply::Status(reply),
        (text, _) => Reply::text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_reply_name_its_type() {
        let replies = ["{next}", "OK", "nil", "value"].map(|reply| answer(reply, 1));
        assert_eq!(replies, [Reply::Int(2), Reply::Status("OK".to_owned()), Reply::Nil, Reply::text("value")]);
    }
}
