//! A worker: a process with some clients, which acquire and release locks again and again, in the language of their package.
//!
//! Its arguments are the name of the package, the server's port, a file with the number of a lock in each line, the number of its
//! first client, the number of its clients, the time of each hold in milliseconds, and the number of permits of each lock. Client
//! n begins at line `n * STRIDE` of the file and uses the next line for each next attempt. The worker connects and writes `ready`
//! and the version of its package. It reads a line with the time until which attempts begin. Then it writes a line for each attempt
//! (see [`Attempt`]) and `done`, and waits for the end of its input. Times are nanoseconds of CLOCK_MONOTONIC, which is the same
//! in every process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::attempts::Attempt;

pub const READY: &str = "ready";
pub const DONE: &str = "done";
/// Lines of the file of locks between the first lines of two clients.
pub const STRIDE: usize = 1543;

/// Longer than any package waits, and than a busy machine takes to start a process.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn now_ns() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("a time since the machine started");
    u64::try_from(time.as_nanos()).expect("less than centuries")
}

/// Dropping it ends the process.
pub struct Worker {
    process: Child,
    /// None when the worker may end.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    pub fn start(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run `scripts/setup bench` first"));
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { process, input, lines }
    }

    /// Waits until it is connected. Returns the version of its package.
    pub fn wait_until_ready(&self) -> String {
        let line = self.line();
        let version = line.strip_prefix(READY).unwrap_or_else(|| panic!("not the first line of a worker: {line:?}"));
        version.trim_start().to_owned()
    }

    pub fn run_until(&mut self, end_ns: u64) {
        let input = self.input.as_mut().expect("a worker that runs");
        writeln!(input, "{end_ns}").expect("a worker that reads");
    }

    /// Waits for the end of the worker's last attempt.
    pub fn attempts(&self) -> Vec<Attempt> {
        let lines = std::iter::from_fn(|| Some(self.line()).filter(|line| line != DONE));
        lines.map(|line| line.parse().unwrap_or_else(|()| panic!("not an attempt: {line:?}"))).collect()
    }

    /// Waits for the regular end of the process.
    pub fn end(&mut self) {
        self.input = None;
        let status = self.process.wait().expect("the end of the worker");
        assert!(status.success(), "a worker ended with {status}");
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a worker that goes on; see its own message")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
