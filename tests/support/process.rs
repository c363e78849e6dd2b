//! Ending and stopping the process of one server, as a crash or a frozen machine would.

use std::fs;
use std::process::{self, Command, Stdio};

use super::{Client, Protocol, Server, eventually};

/// The process of a server that runs. A stopped one is ended all the same when its [`Server`] is dropped.
pub struct Process {
    pid: u32,
}

impl Process {
    #[track_caller]
    pub fn of(server: &Server) -> Self {
        Self::at(server.port())
    }

    /// By the port on which the server, or a sentinel, listens.
    #[track_caller]
    pub fn at(port: u16) -> Self {
        let mut client = Client::connect(port, Protocol::Resp2).expect("a server that takes connections");
        let pid = client.info("server", "process_id").expect("a server that tells its process");
        Self { pid: pid.parse().expect("the number of a process") }
    }

    /// Freezes the process: its sockets stay open and answer nothing. What is sent from here on is found in one piece when
    /// it goes on: a thread that had an answer from `epoll_wait` on the way when the signal came takes it along to its stop.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("-STOP");
        eventually("the process stands still", || self.stands_still());
    }

    #[track_caller]
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Ends the process at once, without a word to anybody.
    #[track_caller]
    pub fn kill(server: &mut Server) {
        Self::of(server).signal("-KILL");
        server.wait_for_end();
    }

    /// Lets a process end by itself, which may take a while. One that is stopped goes on, so that it hears of it.
    #[track_caller]
    pub(super) fn ask_to_end(pid: u32) {
        let process = Self { pid };
        process.signal("-TERM");
        process.resume();
    }

    /// Whether each of its threads is stopped, which a signal alone does not say: see proc_pid_stat(5).
    fn stands_still(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("a process that is there");
        // The state stands behind the name, which is in brackets and may be anything.
        let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'));
        // A thread may have ended meanwhile.
        threads
            .flatten()
            .all(|thread| fs::read_to_string(thread.path().join("stat")).ok().and_then(state) != Some(false))
    }

    #[track_caller]
    fn signal(&self, signal: &str) {
        send(signal, self.pid);
    }
}

/// Sends a process the signal of Ctrl-C.
#[track_caller]
pub fn interrupt(pid: u32) {
    send("-INT", pid);
}

/// With the shell's own `kill`: a minimal system has no program of that name.
#[track_caller]
fn send(signal: &str, pid: u32) {
    let line = format!("kill {signal} {pid}");
    let status = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).status().expect("a shell");
    assert!(status.success(), "{line}");
}

/// Raises the number of files that this process may have open as far as it may, which servers do for themselves. There must
/// be `want` at least; those who test beside the caller need some, too.
#[track_caller]
pub fn allow_open_files(want: usize) {
    let pid = process::id();
    let line = format!(
        "most=$(ulimit -Hn) && [ $most = unlimited -o $most -ge {want} ] && prlimit --pid {pid} --nofile=$most:"
    );
    let status = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "ulimit -Hn must be {want} at least");
}
