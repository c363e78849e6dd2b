//! Real sentinels that watch a master.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;

use tempfile::TempDir;

use super::replicas::{in_time, is_master};
use super::setup::{free_port, server_under_test};
use super::{Client, Protocol, Reply, Server};

/// The name under which they know the master.
const NAME: &str = "locks";
const QUORUM: usize = 2;
/// For how long they hear nothing of a server that they think is down. On a busy machine one that is well may need a second,
/// and is replaced by another then.
const DOWN_AFTER_MS: u64 = 2000;

pub struct Sentinel {
    process: Child,
    port: u16,
    directory: TempDir,
}

impl Sentinel {
    /// Three of them that know of each other and of the master's replicas.
    #[track_caller]
    pub fn start_three(master: &Server, replicas: usize) -> Vec<Self> {
        Self::start_three_at(master.port(), replicas, |_, _| String::new())
    }

    /// The same for a master that is reached at another port than its own, with lines for the configuration of each: `more`
    /// is told its number, and the name of the master.
    #[track_caller]
    pub fn start_three_at(port: u16, replicas: usize, more: impl Fn(usize, &str) -> String) -> Vec<Self> {
        let sentinels: Vec<Self> = (0..3).map(|number| Self::start(port, &more(number, NAME))).collect();
        for sentinel in &sentinels {
            in_time("the sentinels know everybody", || sentinel.knows(sentinels.len() - 1, replicas));
        }
        sentinels
    }

    fn start(master: u16, more: &str) -> Self {
        let directory = TempDir::with_prefix("redis-lock-test-").expect("a temporary folder");
        let port = free_port();
        let config = format!(
            "bind 127.0.0.1\n\
             port {port}\n\
             dir {}\n\
             sentinel monitor {NAME} 127.0.0.1 {master} {QUORUM}\n\
             sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {NAME} 5000\n\
             sentinel parallel-syncs {NAME} 2\n\
             {more}",
            directory.path().display(),
        );
        let file = directory.path().join("sentinel.conf");
        fs::write(&file, config).expect("a writable folder");
        let log = File::create(directory.path().join("sentinel.log")).expect("a log file");
        let process = Command::new(server_under_test())
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .expect("a server that can be a sentinel");
        Self { process, port, directory }
    }

    /// Whether it has heard of that many other sentinels and of replicas that are in step.
    pub fn knows(&self, others: usize, replicas: usize) -> bool {
        let Some(mut client) = self.client() else { return false };
        let master = client.run(&format!("SENTINEL MASTER {NAME}"));
        if master.is_error() || master.get("num-other-sentinels") != others.to_string().as_str() {
            return false;
        }
        let known = client.run(&format!("SENTINEL REPLICAS {NAME}"));
        let in_step = known.items().iter().filter(|replica| replica.get("master-link-status") == "ok").count();
        in_step == replicas
    }

    /// Whether it thinks that the master and enough sentinels are well, and is not replacing it.
    pub fn is_calm(&self) -> bool {
        let Some(mut client) = self.client() else { return false };
        let master = client.run(&format!("SENTINEL MASTER {NAME}"));
        let agreed = client.run(&format!("SENTINEL CKQUORUM {NAME}"));
        !master.is_error() && master.get("flags") == "master" && !agreed.is_error()
    }

    /// Has it replace the master now, whatever it thinks of it. Returns whether it does: not while it replaces one already, or
    /// knows of none to promote.
    pub fn try_to_fail_over(&self) -> bool {
        self.client().is_some_and(|mut client| client.run(&format!("SENTINEL FAILOVER {NAME}")) == "OK")
    }

    /// The port on which it answers itself.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port of the master, as this sentinel tells clients that ask.
    pub fn master_port(&self) -> Option<u16> {
        match self.client()?.run(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}")) {
            Reply::List(address) => address.get(1)?.string().parse().ok(),
            _ => None,
        }
    }

    /// Has it promote a replica, although the master is there; waits until it knows of one that it may promote.
    #[track_caller]
    pub fn fail_over(&self) {
        in_time("the sentinel fails over", || self.try_to_fail_over());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("sentinel.log")).unwrap_or_default()
    }

    pub fn client(&self) -> Option<Client> {
        Client::connect(self.port, Protocol::Resp2)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- sentinel on port {}:\n{}", self.port, self.log());
        }
    }
}

/// The server that every sentinel names as master, once it is not `old` and takes writes.
#[track_caller]
pub fn new_master<'s>(sentinels: &[Sentinel], old: u16, replicas: &'s [Server]) -> &'s Server {
    let mut found = None;
    in_time("the sentinels name a new master", || {
        let mut ports: Vec<u16> = sentinels.iter().filter_map(Sentinel::master_port).collect();
        ports.dedup();
        found = match ports[..] {
            [port] if port != old => replicas.iter().find(|replica| replica.port() == port),
            _ => None,
        };
        found.is_some_and(is_master)
    });
    found.expect("one of the replicas")
}
