//! Runs the programs of the documents and of examples/waiting that take the lock `door`, say so, and leave nothing behind.

use std::fs;
use std::time::Duration;

use support::parallel::for_each;
use support::process;
use support::{Client, Server, happens_within, info_lock, waiters_of};

use super::blocks::{Block, every_block};
use super::programs::{LANGUAGES, Running, calls, is_installed};

/// How long a program may take to start on a busy machine, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// Clients with the interface of others: the language, the name that is shown, and the other name.
const RELATIVES: [(&str, &str, &str); 2] = [
    ("python", "import redis\n", "import valkey as redis\n"),
    ("python", "import redis.asyncio as redis\n", "import valkey.asyncio as redis\n"),
];

struct Program {
    block: Block,
    /// The program, or the same with another client.
    text: String,
}

impl Program {
    /// Returns the programs in languages that run here.
    fn all() -> Vec<Self> {
        let blocks = LANGUAGES.into_iter().filter(|language| is_installed(language)).flat_map(every_block);
        let all: Vec<Self> = blocks.flat_map(Self::with_relatives).collect();
        assert!(!all.is_empty());
        all
    }

    /// Returns those that wait in slices, with a patience of 20 seconds.
    fn patient() -> Vec<Self> {
        let all: Vec<Self> = Self::all().into_iter().filter(|program| program.text.contains("2000")).collect();
        assert!(!all.is_empty());
        all
    }

    fn with_relatives(block: Block) -> Vec<Self> {
        let shown = block.lines.join("\n");
        let relatives =
            RELATIVES.into_iter().filter(|(language, name, _)| block.language == *language && shown.contains(name));
        let texts = relatives.map(|(_, name, other)| shown.replace(name, other)).chain([shown.clone()]);
        texts.map(|text| Self { block: block.clone(), text }).collect()
    }

    /// Starts the program with other times.
    #[track_caller]
    fn start(&self, slice_ms: u32, patience_ms: u32, server: &Server) -> Running {
        let [slice, patience] = [slice_ms, patience_ms].map(|ms| ms.to_string());
        let parts: Vec<String> = self.text.split("20000").map(|part| part.replace("2000", &slice)).collect();
        Running::start(&self.block.language, &parts.join(&patience), server.port())
    }

    /// Leaves the server without a waiter, by RELEASE unless the connection of a session was closed.
    #[track_caller]
    fn left_queue(&self, client: &mut Client) {
        let releases = usize::from(self.text.contains("LOCK.RELEASE"));
        assert_eq!(calls(client, "lock.release"), releases, "{}", self.block.place());
        assert_eq!(waiters_of(client, "door"), 0, "{}", self.block.place());
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(client.run("EXISTS door"), 0, "{}", self.block.place());
    }
}

/// A server where `holder` has the lock.
fn held() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door holder PX 600000"), 1);
    (server, client)
}

#[test]
fn program_takes_and_releases_free_lock() {
    for_each(&Program::all(), |program| {
        let server = Server::start();
        let output = program.start(100, 1000, &server).output_within(LIMIT);
        assert!(
            output.as_ref().is_ok_and(|it| it.starts_with("the door is ours")),
            "{}: {output:?}",
            program.block.place()
        );
        assert_eq!(server.client().run("KEYS *door").items().len(), 0, "{}", program.block.place());
    });
}

#[test]
fn program_waits_over_several_slices() {
    for_each(&Program::patient(), |program| {
        let (server, mut client) = held();
        let mut running = program.start(100, 90000, &server);
        let slices_end = || info_lock(&mut client, "timed_out") >= 2;
        assert!(happens_within(LIMIT, slices_end), "{}: slices end", program.block.place());
        assert!(happens_within(LIMIT, || waiters_of(&mut client, "door") == 1), "{}", program.block.place());
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(running.output_within(LIMIT), Ok("the door is ours\n".to_owned()), "{}", program.block.place());
        assert_eq!(client.run("EXISTS door"), 0, "{}", program.block.place());
    });
}

#[test]
fn program_without_patience_leaves_queue() {
    for_each(&Program::patient(), |program| {
        let (server, mut client) = held();
        let output = program.start(100, 1000, &server).output_within(LIMIT);
        assert_eq!(output, Ok(String::new()), "{}", program.block.place());
        program.left_queue(&mut client);
    });
}

#[test]
fn interrupted_python_program_leaves_queue() {
    let programs: Vec<Program> = Program::patient().into_iter().filter(|it| it.block.language == "python").collect();
    for_each(&programs, |program| {
        let (server, mut client) = held();
        // The interrupt comes during the first slice, also on a busy machine.
        let mut running = program.start(20000, 60000, &server);
        let id = running.child().id();
        // asyncio before Python 3.12 can lose an interrupt that comes right after the request was sent.
        let sleeps = || fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|it| it.contains("State:\tS"));
        let waits = || waiters_of(&mut client, "door") == 1 && sleeps();
        assert!(happens_within(LIMIT, waits), "{}: it waits", program.block.place());
        process::interrupt(id);
        let error = running.output_within(LIMIT).expect_err("it is interrupted");
        assert!(error.trim_end().ends_with("KeyboardInterrupt"), "{}: {error}", program.block.place());
        program.left_queue(&mut client);
    });
}
