//! One running server in a folder of its own. Dropping it ends the process and fails the test if the server has died or crashed,
//! or if the module has a bug: a caught panic, or a broken invariant.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::connection::{Connection, packed};
use super::process::Process;
use super::{Aof, Client, Flavour, PATIENCE, Protocol, Reply, Setup, memcheck, patient};

const TAIL_LINES: usize = 60;
const START_POLL: Duration = Duration::from_millis(3);

/// How long a server may take that ends when it is asked to.
const ORDERLY_END: Duration = Duration::from_secs(3);

const CONFIG_FILE: &str = "server.conf";

/// The time in which a server must reply to INFO at its end. A server that is paused or stopped does not reply.
const BUG_COUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// The words that the log of a server must not have.
const SIGNS_OF_A_CRASH: [&str; 4] = ["BUG REPORT", "crashed by signal", "ASSERTION FAILED", "Guru Meditation"];

/// The words that the log has only in a test that causes bugs: the place of a panic, a caught panic, a broken invariant.
const SIGNS_OF_A_BUG: [&str; 3] =
    ["panicked at", "bug in redis-lock, please report it", "since the module was loaded, please report it"];

pub struct Server {
    process: Child,
    port: u16,
    directory: Arc<TempDir>,
    /// The test has ended the process itself.
    ended: bool,
    /// Whether the test causes bugs in the module.
    allows_bugs: bool,
}

/// A server that ended by itself before it answered.
#[derive(Debug)]
pub struct Ended {
    pub log: String,
}

impl Ended {
    pub fn port_was_taken(&self) -> bool {
        self.log.contains("Address already in use")
    }
}

impl Server {
    /// The server under test with the module and nothing else.
    #[track_caller]
    pub fn start() -> Self {
        Setup::new().start()
    }

    pub(super) fn launch(
        mut command: Command,
        port: u16,
        directory: Arc<TempDir>,
        allows_bugs: bool,
    ) -> Result<Self, Ended> {
        let log = File::create(log_path(&directory)).expect("a log file");
        let errors = log.try_clone().expect("a second handle of the log");
        let process = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let mut server = Self { process, port, directory, ended: false, allows_bugs };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), Ended> {
        let deadline = Instant::now() + patient(PATIENCE);
        while !self.is_ours() {
            let gone = self.process.try_wait().expect("the state of the process");
            if gone.is_some() {
                self.ended = true;
                return Err(Ended { log: self.log() });
            }
            assert!(Instant::now() < deadline, "the server never answered");
            thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// Whether a server answers on the port, and it is this one: another may have taken the port first.
    fn is_ours(&self) -> bool {
        let Some(mut client) = Client::connect(self.port, Protocol::Resp2) else {
            return false;
        };
        if client.run("PING") != "PONG" {
            return false;
        }
        let there = configuration_of(&mut client).map(fs::canonicalize);
        let here = fs::canonicalize(config_path(&self.directory)).expect("the server's configuration");
        matches!(there, Some(Ok(there)) if there == here)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn directory_handle(&self) -> Arc<TempDir> {
        Arc::clone(&self.directory)
    }

    pub fn log(&self) -> String {
        let bytes = fs::read(log_path(&self.directory)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn aof(&self) -> Aof {
        Aof::of(self.directory())
    }

    #[track_caller]
    pub fn client(&self) -> Client {
        self.client_speaking(Protocol::Resp2)
    }

    #[track_caller]
    pub fn client_speaking(&self, protocol: Protocol) -> Client {
        Client::connect(self.port, protocol).expect("a server that takes connections")
    }

    /// Runs a line on a connection of its own. [`Reply::Closed`] if the server takes none, or closes it.
    pub fn ask(&self, line: &str) -> Reply {
        Client::connect(self.port, Protocol::Resp2).map_or(Reply::Closed, |mut client| client.run(line))
    }

    /// A connection with another database selected.
    #[track_caller]
    pub fn client_in(&self, database: u32) -> Client {
        let mut client = self.client();
        client.ok(&format!("SELECT {database}"));
        client
    }

    pub fn flavour(&self) -> Flavour {
        Flavour::of(&mut self.client())
    }

    /// Whether threads read and write for the server's clients. What arrives at once on two connections may then be seen in
    /// two rounds of the loop.
    #[track_caller]
    pub fn has_io_threads(&self) -> bool {
        self.client().run("CONFIG GET io-threads").items()[1] != "1"
    }

    /// Ends the server in the orderly way, with its data written where the configuration says so.
    #[track_caller]
    pub fn shut_down(&mut self, how: &str) {
        let mut client = self.client();
        client.send(&super::bytes_of(&format!("SHUTDOWN {how}")));
        self.wait_for_end();
    }

    /// Waits until the process has ended by itself, which the caller has asked it to.
    #[track_caller]
    pub fn wait_for_end(&mut self) {
        let deadline = Instant::now() + patient(PATIENCE);
        while self.process.try_wait().expect("the state of the process").is_none() {
            assert!(Instant::now() < deadline, "the server did not end");
            thread::sleep(START_POLL);
        }
        self.ended = true;
    }

    /// Ends the process. Returns whether it had to be killed although SERVER_END had it asked to end.
    fn end(&mut self) -> bool {
        let asked = !self.ended && asks_to_end() && matches!(self.process.try_wait(), Ok(None));
        let outlived = asked && !self.ends_when_asked();
        if !self.ended {
            // Both fail only when the process is gone already.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        outlived
    }

    /// Whether the process runs what a process runs at its end, and is gone then. One that is busy may not get there.
    fn ends_when_asked(&mut self) -> bool {
        Process::ask_to_end(self.process.id());
        let deadline = Instant::now() + patient(ORDERLY_END);
        while Instant::now() < deadline {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return true;
            }
            thread::sleep(START_POLL);
        }
        false
    }

    /// That it has died, if it has and the test did not end it.
    fn death(&mut self) -> Option<String> {
        let status = self.process.try_wait().ok().flatten();
        status.filter(|_| !self.ended).map(|status| format!("the server died: {status}"))
    }

    /// Returns what `INFO lock` says about broken invariants, if anything. The log can be without them: the module logs them later.
    fn counted_bugs(&mut self) -> Option<String> {
        if self.ended || self.allows_bugs || !matches!(self.process.try_wait(), Ok(None)) {
            return None;
        }
        // A server that does not reply, or has no such field, has no count.
        let mut connection = Connection::open(self.port, BUG_COUNT_TIMEOUT).ok()?;
        connection.send(&packed(&["INFO", "lock"])).ok()?;
        let Reply::Text(info) = Reply::of(connection.receive()) else { return None };
        let info = String::from_utf8_lossy(&info);
        let count = info.lines().find_map(|line| line.strip_prefix("lock_bugs:"))?;
        (count != "0").then(|| format!("INFO counts {count} broken invariants"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let death = self.death();
        let bugs = if thread::panicking() { None } else { self.counted_bugs() };
        let outlived = self.end();
        // Its end may be what is wrong with it.
        let memcheck = memcheck::complaint(self.directory(), outlived);
        let complaints: Vec<String> =
            [death, bugs, sign_in(&self.log(), self.allows_bugs), memcheck].into_iter().flatten().collect();
        let complaint = complaints.join("\n");
        if thread::panicking() || !complaint.is_empty() {
            eprintln!("--- server on port {}: end of its log", self.port);
            eprintln!("{}", tail(&self.log()));
        }
        if !complaint.is_empty() {
            if thread::panicking() {
                eprintln!("--- {complaint}");
            } else {
                panic!("{complaint}");
            }
        }
    }
}

/// Whether SERVER_END asks for an end that runs what a process runs at its end.
fn asks_to_end() -> bool {
    env::var("SERVER_END").as_deref() == Ok("orderly")
}

/// The configuration of the server with this folder.
pub(super) fn config_path(directory: &TempDir) -> PathBuf {
    directory.path().join(CONFIG_FILE)
}

/// The path of the configuration of a server. A test may have renamed CONFIG or INFO, but not both.
fn configuration_of(client: &mut Client) -> Option<PathBuf> {
    if let Reply::List(pair) = client.run("CONFIG GET dir") {
        return pair.get(1).map(|dir| PathBuf::from(dir.string()).join(CONFIG_FILE));
    }
    let Reply::Text(info) = client.run("INFO server") else { return None };
    let info = String::from_utf8_lossy(&info);
    info.lines().find_map(|line| line.strip_prefix("config_file:")).map(PathBuf::from)
}

fn log_path(directory: &TempDir) -> PathBuf {
    directory.path().join("server.log")
}

/// Returns what a log says about a crash or a bug, if anything.
fn sign_in(log: &str, allows_bugs: bool) -> Option<String> {
    let bugs = SIGNS_OF_A_BUG.iter().filter(|_| !allows_bugs);
    SIGNS_OF_A_CRASH.iter().chain(bugs).find(|sign| log.contains(**sign)).map(|sign| format!("the log says {sign:?}"))
}

/// Returns the end of a log, or the part about a crash or a bug.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let has_sign = |line: &&str| SIGNS_OF_A_CRASH.iter().chain(&SIGNS_OF_A_BUG).any(|sign| line.contains(sign));
    let crash = lines.iter().position(has_sign);
    let last = lines.len().saturating_sub(TAIL_LINES);
    let from = crash.map_or(last, |line| line.saturating_sub(TAIL_LINES / 4));
    lines.iter().skip(from).take(TAIL_LINES).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUGS: [&str; 3] = [
        "<lock> panicked at src/host/waiting/queue.rs:9:1: nothing",
        "<lock> bug in redis-lock, please report it: timer: nothing",
        "<lock> bug: an entry is missing; 3 since the module was loaded, please report it",
    ];

    #[test]
    fn bug_in_log_counts_unless_it_is_allowed() {
        for bug in BUGS {
            assert!(sign_in(bug, false).is_some(), "{bug}");
            assert_eq!(sign_in(bug, true), None, "{bug}");
        }
        let other = "<lock> the server stalled for 3000 ms";
        assert_eq!(sign_in(other, false), None);
    }

    #[test]
    fn crash_in_log_counts_always() {
        for allows_bugs in [false, true] {
            assert!(sign_in("# Redis 8.0.2 crashed by signal: 11", allows_bugs).is_some());
        }
    }
}
