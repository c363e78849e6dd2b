//! A worker: a process with one client that takes one lock again and again, written in the language of its package.
//!
//! It is started with the server's port, the key, how long it is to hold the lock, in microseconds, and of a semaphore the
//! number of permits. It connects and says `ready` and the version of its package. It is told, in a line, until when it is
//! to begin attempts. Then it says what became of each attempt, a line for each, and `done`, and waits until its input is
//! closed. Times are nanoseconds of CLOCK_MONOTONIC, which is the same in every process of the machine.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::attempts::Attempt;

pub const READY: &str = "ready";
pub const DONE: &str = "done";

/// Longer than any package waits before it gives up, and than a busy machine takes to start a process.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn now_ns() -> u64 {
    Duration::try_from(clock_gettime(ClockId::Monotonic))
        .ok()
        .and_then(|time| u64::try_from(time.as_nanos()).ok())
        .expect("a time since the machine started")
}

/// Dropping it ends the process.
pub struct Worker {
    process: Child,
    /// None once the worker may end.
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

    /// Waits until it is connected; returns the version of its package.
    pub fn wait_until_ready(&self) -> String {
        let line = self.line();
        let version = line.strip_prefix(READY).unwrap_or_else(|| panic!("not the first line of a worker: {line:?}"));
        version.trim_start().to_owned()
    }

    pub fn run_until(&mut self, end_ns: u64) {
        writeln!(self.input.as_ref().expect("a worker that was not let go"), "{end_ns}")
            .expect("a worker that listens");
    }

    /// Waits until the worker has made its last attempt.
    pub fn attempts(&self) -> Vec<Attempt> {
        let lines = std::iter::from_fn(|| Some(self.line()).filter(|line| line != DONE));
        lines.map(|line| line.parse().unwrap_or_else(|()| panic!("not an attempt: {line:?}"))).collect()
    }

    /// Waits for the worker's orderly end.
    pub fn let_go(&mut self) {
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
        // Both fail only when the process is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
