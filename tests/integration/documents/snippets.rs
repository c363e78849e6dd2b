//! Runs what the documentation shows besides sessions: shell commands, configuration, Python, SQL and, where
//! their clients are installed, other languages. No block is shown in a language that nothing runs.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::parallel::for_each;
use support::python::interpreter;
use support::{Client, Server, Setup, eventually, happens_within, info_lock, repository, waiters_of};

use super::blocks::{Block, LOSING, MIGRATION, MULTIPLEXED, all_blocks, every_block};
use super::programs::{LANGUAGES, calls, is_installed, said, start};

/// Languages of which documents only show what contrib/ has, and `make monitoring` runs.
const OF_CONTRIB: [&str; 3] = ["yaml", "ini", "promql"];

fn place(block: &Block) -> String {
    format!("{}, line {}", block.document, block.first)
}

#[test]
fn every_block_is_in_a_language_that_is_run_or_is_plain_text() {
    // Sessions, which are marked redis, are played in replies.rs; Rust is run in clients/multiplexed.rs and clients/recipes.rs.
    let known = [&["redis", "sh", "conf", "rust", "sql", "text"][..], &LANGUAGES, &OF_CONTRIB].concat();
    for block in all_blocks() {
        assert!(known.contains(&block.language.as_str()), "{}: {}", place(&block), block.language);
    }
}

#[test]
fn every_shell_command_is_a_target_of_the_makefile() {
    let blocks = every_block("sh");
    assert!(!blocks.is_empty());
    for block in blocks {
        for line in &block.lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.first(), Some(&"make"), "{}: {line}", place(&block));
            let dry_run = Command::new("make").arg("--dry-run").args(&words[1..]).current_dir(repository()).output();
            assert!(dry_run.expect("make").status.success(), "{}: {line}", place(&block));
        }
    }
}

#[test]
fn what_is_shown_of_contrib_stands_there() {
    let mut texts = Vec::new();
    for folder in ["prometheus", "grafana"] {
        let entries = fs::read_dir(repository().join("contrib").join(folder)).expect("a folder of contrib");
        texts.extend(entries.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text")));
    }
    for language in OF_CONTRIB {
        let blocks = every_block(language);
        assert!(!blocks.is_empty(), "{language}");
        for block in blocks {
            let shown = block.lines.join("\n");
            // In the dashboard a query is a string of JSON.
            let forms = [shown.replace('"', "\\\""), shown];
            let stands = texts.iter().any(|text| forms.iter().any(|form| text.contains(form)));
            assert!(stands, "{}", place(&block));
        }
    }
}

#[test]
fn every_configuration_is_taken_by_the_server() {
    let blocks = every_block("conf");
    assert!(!blocks.is_empty());
    for block in blocks {
        // The module under test stands where it is built, not where it is installed.
        let lines: Vec<&str> =
            block.lines.iter().map(String::as_str).filter(|line| !line.starts_with("loadmodule")).collect();
        let server = Setup::new().config(&lines.join("\n")).start();
        for line in lines {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            let set = server.client().run(&format!("CONFIG GET {name}"));
            assert_eq!(set.get(name), value, "{}: {line}", place(&block));
        }
    }
}

/// Clients that are used as those that programs show: the language, the name that is shown, and that of the other one.
const RELATIVES: [(&str, &str, &str); 4] = [
    ("python", "import redis\n", "import valkey as redis\n"),
    ("python", "import redis.asyncio as redis\n", "import valkey.asyncio as redis\n"),
    ("javascript", "'ioredis'", "'iovalkey'"),
    ("perl", "Redis", "Redis::Fast"),
];

/// A program that takes `door`, says so, and leaves nothing behind.
struct Program {
    block: Block,
    /// The one that is shown, or a relative in its place.
    text: String,
}

impl Program {
    /// Those of the documentation in languages that run here. The ones that wait with NOTIFY are run in
    /// clients/multiplexed.rs, the ones that watch over a lock in clients/losing.rs, those of the migration in
    /// clients/packages/guide.rs.
    fn all() -> Vec<Self> {
        let languages = LANGUAGES.into_iter().filter(|language| is_installed(language));
        let elsewhere = [MULTIPLEXED, LOSING, MIGRATION];
        let blocks = languages.flat_map(every_block).filter(|block| !elsewhere.contains(&&*block.document));
        let all: Vec<Self> = blocks.flat_map(Self::with_relatives).collect();
        assert!(!all.is_empty());
        all
    }

    /// The program as it is shown, and with the clients that are used as its own is.
    fn with_relatives(block: Block) -> Vec<Self> {
        let shown = block.lines.join("\n");
        let relatives =
            RELATIVES.into_iter().filter(|(language, name, _)| block.language == *language && shown.contains(name));
        let texts = relatives.map(|(_, name, other)| shown.replace(name, other)).chain([shown.clone()]);
        texts.map(|text| Self { block: block.clone(), text }).collect()
    }

    fn place(&self) -> String {
        place(&self.block)
    }

    /// Starts it against a server, with waits that are a twentieth of those that the document shows.
    fn start(&self, server: &Server) -> Child {
        self.start_with(100, 1000, server)
    }

    /// The same with slices of so many milliseconds, where the document has 2000, and so much patience, where it has 20000.
    fn start_with(&self, slice_ms: u32, patience_ms: u32, server: &Server) -> Child {
        assert!(self.text.contains("2000"), "{}: it waits in slices", self.place());
        let [slice, patience] = [slice_ms, patience_ms].map(|ms| ms.to_string());
        let changed =
            self.text.split("20000").map(|part| part.replace("2000", &slice)).collect::<Vec<_>>().join(&patience);
        start(&self.block.language, &changed, server.port())
    }

    /// Whether it cleans up by RELEASE, as all do that do not close a session.
    fn releases(&self) -> bool {
        self.text.contains("LOCK.RELEASE")
    }
}

/// Whether a program waits for something to happen.
fn is_asleep(program: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", program.id())).expect("a process");
    status.lines().any(|line| line.starts_with("State:\tS"))
}

/// How many RELEASE the server has run.
fn releases(client: &mut Client) -> usize {
    calls(client, "lock.release")
}

#[test]
fn a_program_takes_and_releases_the_lock() {
    for_each(&Program::all(), |program| {
        let server = Server::start();
        assert_eq!(said(program.start(&server)), Ok("the door is ours\n".to_owned()), "{}", program.place());
        assert_eq!(server.client().run("EXISTS door"), 0, "{}", program.place());
    });
}

#[test]
fn a_program_waits_for_the_lock_over_several_slices() {
    for_each(&Program::all(), |program| {
        let server = Server::start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE door holder PX 600000");
        // Patient enough for a busy machine.
        let running = program.start_with(100, 90000, &server);
        let slices_end = || info_lock(&mut client, "timed_out") >= 2;
        let has_waited = happens_within(Duration::from_secs(60), slices_end);
        assert!(has_waited, "{}: slices end, and the program has to start", program.place());
        eventually("it waits", || waiters_of(&mut client, "door") == 1);
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(said(running), Ok("the door is ours\n".to_owned()), "{}", program.place());
        assert_eq!(client.run("EXISTS door"), 0, "{}", program.place());
    });
}

#[test]
fn a_program_that_gives_up_leaves_the_line() {
    for_each(&Program::all(), |program| {
        let server = Server::start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE door holder PX 60000");
        assert_eq!(said(program.start(&server)), Ok(String::new()), "{}", program.place());
        assert_eq!(releases(&mut client), usize::from(program.releases()), "{}", program.place());
        assert_eq!(waiters_of(&mut client, "door"), 0, "{}", program.place());
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(client.run("EXISTS door"), 0, "{}", program.place());
    });
}

#[test]
fn a_python_program_that_is_interrupted_leaves_the_line() {
    let programs: Vec<Program> = Program::all().into_iter().filter(|one| one.block.language == "python").collect();
    for_each(&programs, |program| {
        let server = Server::start();
        let mut client = server.client();
        client.run("LOCK.ACQUIRE door holder PX 60000");
        // Long enough for the interrupt to come while it waits, however busy the machine is.
        let running = program.start_with(2000, 20000, &server);
        // Not while it is still busy with having sent the request: asyncio before Python 3.12 can lose an interrupt then.
        let waits = || waiters_of(&mut client, "door") == 1 && is_asleep(&running);
        assert!(happens_within(Duration::from_secs(60), waits), "{}: it waits, once it has started", program.place());
        let interrupt = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(interrupt.expect("kill").success());
        let Err(error) = said(running) else { panic!("{}: it was not interrupted", program.place()) };
        assert!(error.trim_end().ends_with("KeyboardInterrupt"), "{}: {error}", program.place());
        assert_eq!(releases(&mut client), usize::from(program.releases()), "{}", program.place());
        assert_eq!(waiters_of(&mut client, "door"), 0, "{}", program.place());
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(client.run("EXISTS door"), 0, "{}", program.place());
    });
}

#[test]
fn the_sql_statement_refuses_a_token_that_is_too_low() {
    let blocks = every_block("sql");
    assert!(!blocks.is_empty());
    for block in blocks {
        let program = format!(
            "import sqlite3
db = sqlite3.connect(':memory:')
db.execute('CREATE TABLE account (id INTEGER, balance INTEGER, fence INTEGER)')
db.execute('INSERT INTO account VALUES (1, 0, 0)')
for token, balance in [(5, 10), (5, 20), (7, 30), (6, 99)]:
    print(db.execute('{}', dict(id=1, token=token, balance=balance)).rowcount)
print(db.execute('SELECT balance, fence FROM account').fetchone())",
            block.lines.join(" ")
        );
        let mut python = Command::new(interpreter());
        python.args(["-c", &program]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let python = python.spawn().expect("a Python that runs");
        assert_eq!(said(python), Ok("1\n1\n1\n0\n(30, 7)\n".to_owned()), "{}", place(&block));
    }
}

#[test]
fn the_example_configuration_starts_a_server() {
    let text = fs::read_to_string(repository().join("redis.conf.example")).expect("a redis.conf.example");
    assert!(text.lines().any(|line| line.starts_with("loadmodule ")), "it loads the module");
    // Port, directory and module are the test's own.
    let ours = ["loadmodule", "port", "dir", "logfile", "daemonize", "pidfile", "bind"];
    let is_ours = |line: &str| ours.contains(&line.split(' ').next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|line| !is_ours(line)).collect();
    let server = Setup::new().config(&lines.join("\n")).start();
    let mut client = server.client();
    assert_eq!(client.run("CONFIG GET maxmemory-policy").get("maxmemory-policy"), "noeviction");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 9000"), 1);
}
