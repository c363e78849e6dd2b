//! What a server is asked to do while its instructions are counted.

use std::thread::sleep;
use std::time::Duration;

use support::{Client, Library, Reply, Server, Setup, bytes_of};

/// Longer than a server under callgrind takes for a command.
const APART: Duration = Duration::from_millis(3);

/// One command and the answer to it: a cycle that is answered otherwise does not do the work that is to be counted.
#[derive(Clone)]
pub struct Step {
    words: Vec<Vec<u8>>,
    answer: Reply,
}

impl Step {
    pub fn new(words: &[&str], answer: Reply) -> Self {
        Self { words: words.iter().map(|word| word.as_bytes().to_vec()).collect(), answer }
    }

    /// A command line whose words have no spaces.
    pub fn line(line: &str, answer: Reply) -> Self {
        Self { words: bytes_of(line).into_iter().map(<[u8]>::to_vec).collect(), answer }
    }

    fn run(&self, client: &mut Client) {
        client.send(&self.words);
        self.check(client);
    }

    fn check(&self, client: &mut Client) {
        let answer = client.receive();
        assert_eq!(answer, self.answer, "{}", String::from_utf8_lossy(&self.words.join(&b' ')));
    }
}

pub(super) fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

/// What is loaded into a server.
#[derive(Clone, Copy)]
pub enum Module {
    None,
    /// One that does nothing but block clients.
    Empty,
    RedisLock,
}

/// What the server is asked to do. Unless it comes in batches, it does each step when it has answered the one before.
pub struct Workload {
    module: Module,
    prepare: Vec<Step>,
    idle: usize,
    waiting: usize,
    batch: usize,
    cycle: Box<dyn Fn(u64) -> Vec<Step> + Send + Sync>,
}

impl Workload {
    /// `cycle` has the steps of the cycle with that number.
    pub fn new(cycle: impl Fn(u64) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self { module: Module::RedisLock, prepare: Vec::new(), idle: 0, waiting: 0, batch: 1, cycle: Box::new(cycle) }
    }

    /// On a server with that module in place of redis-lock.
    pub fn on(mut self, module: Module) -> Self {
        self.module = module;
        self
    }

    /// Steps ahead of all cycles, which are not counted.
    pub fn prepared_by(mut self, steps: Vec<Step>) -> Self {
        self.prepare = steps;
        self
    }

    /// That many more connections, which do nothing.
    pub fn beside_idle(mut self, connections: usize) -> Self {
        self.idle = connections;
        self
    }

    /// That many more connections, which a module blocks on a key that has nothing to do with the cycles.
    pub fn beside_waiting(mut self, connections: usize) -> Self {
        self.waiting = connections;
        self
    }

    /// So many cycles in one write, which the server does in one round of its loop.
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

    fn blocking_command(&self) -> &'static str {
        match self.module {
            Module::None => panic!("no module, so nobody can wait"),
            Module::Empty => "PEER.ACQUIRE",
            Module::RedisLock => "LOCK.ACQUIRE",
        }
    }

    /// Does so many cycles. Gives back the other connections, which are still open.
    pub(super) fn drive(&self, server: &Server, client: &mut Client, cycles: u64) -> Vec<Client> {
        // The key is there with and without the module, so that the keyspace is the same.
        client.ok("SET elsewhere held");
        // The server's timer goes off when it has nothing to do for a millisecond after its start: before they are there.
        sleep(10 * APART);
        let mut others: Vec<Client> = (0..self.idle + self.waiting).map(|_| server.client()).collect();
        for (number, other) in others.iter_mut().take(self.waiting).enumerate() {
            other.send(&bytes_of(&format!("{} elsewhere {number:032x} BLOCK 0", self.blocking_command())));
            // So that each is served in a round of its own of the server's loop.
            sleep(APART);
        }
        self.prepare.iter().for_each(|step| step.run(client));
        let numbers: Vec<u64> = (0..cycles).collect();
        for batch in numbers.chunks(self.batch) {
            let steps: Vec<Step> = batch.iter().flat_map(|&number| (self.cycle)(number)).collect();
            if self.batch == 1 {
                steps.iter().for_each(|step| step.run(client));
            } else {
                client.send_all(steps.iter().map(|step| step.words.as_slice()));
                steps.iter().for_each(|step| step.check(client));
            }
        }
        let blocked = client.info("clients", "blocked_clients");
        assert_eq!(blocked, Some(self.waiting.to_string()), "clients that wait to the end");
        others
    }
}
