//! The workers in Rust: this program, which starts itself again.

use std::io::{Read, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, iter, thread};

use clap::Args;
use rslock::{Lock, LockManager};
use tokio::runtime::Runtime;

use super::peers::RSLOCK;
use super::worker::{DONE, READY, STRIDE, now_ns};
use crate::place::runtime;
use crate::protocols::{self, Protocol};

#[derive(Args)]
pub struct Options {
    peer: String,
    port: u16,
    locks: PathBuf,
    first: usize,
    clients: usize,
    hold_ms: u64,
    /// For the packages with semaphores.
    #[arg(default_value_t = 1)]
    permits: usize,
}

enum Client {
    /// With its defaults. `lock` tries three times, up to 200 ms apart, so it is in a loop, as in its documentation.
    Rslock(LockManager, Option<Lock>),
    Protocol(protocols::Client),
}

impl Client {
    async fn connect(options: &Options, number: usize) -> Self {
        if options.peer == RSLOCK {
            return Self::Rslock(LockManager::new(vec![format!("redis://127.0.0.1:{}/", options.port)]), None);
        }
        let protocol = Protocol::named(&options.peer).expect("the name of a protocol");
        Self::Protocol(protocol.connect(options.port, number).await)
    }

    /// Connects, and lets the server know the scripts.
    async fn warm(options: &Options, number: usize) -> Self {
        let mut client = Self::connect(options, number).await;
        let lock = format!("warm-up:{number}");
        client.acquire(&lock).await;
        client.release(&lock).await;
        client
    }

    async fn acquire(&mut self, lock: &str) {
        match self {
            Self::Protocol(client) => client.acquire(lock).await,
            Self::Rslock(manager, held) => {
                while held.is_none() {
                    *held = manager.lock(lock, Duration::from_secs(1)).await.ok();
                }
            }
        }
    }

    async fn release(&mut self, lock: &str) {
        match self {
            Self::Protocol(client) => client.release(lock).await,
            Self::Rslock(manager, held) => manager.unlock(&held.take().expect("a lock that it holds")).await,
        }
    }

    /// The attempts until `end_ns`, as lines.
    async fn attempts(&mut self, number: usize, locks: &[String], hold: Duration, end_ns: u64) -> Vec<String> {
        let mut lines = Vec::new();
        for lock in locks.iter().cycle().skip(number * STRIDE % locks.len()) {
            let begun = now_ns();
            if begun >= end_ns {
                break;
            }
            let key = format!("lock:{lock}");
            self.acquire(&key).await;
            let granted = now_ns();
            // A sleep of the runtime is only exact to milliseconds. The thread is this client's alone.
            thread::sleep(hold);
            lines.push(format!("{number} {lock} {begun} {granted} {}", now_ns()));
            self.release(&key).await;
        }
        lines
    }
}

/// Runs what worker.rs describes.
pub fn run(options: &Options) {
    assert_eq!(options.permits, 1, "no client here has semaphores");
    let locks = fs::read_to_string(&options.locks).expect("a file with locks");
    let locks: Arc<Vec<String>> = Arc::new(locks.lines().map(str::to_owned).collect());
    let clients: Vec<(usize, Runtime, Client)> = (options.first..)
        .take(options.clients)
        .map(|number| {
            let runtime = runtime();
            let client = runtime.block_on(Client::warm(options, number));
            (number, runtime, client)
        })
        .collect();
    println!("{READY} {}", if options.peer == RSLOCK { rslock_version() } else { "" });

    let mut line = String::new();
    stdin().read_line(&mut line).expect("a line");
    let (hold, end_ns) = (Duration::from_millis(options.hold_ms), line.trim_end().parse().expect("a time"));
    let start = |(number, runtime, mut client): (usize, Runtime, Client)| {
        let locks = Arc::clone(&locks);
        thread::spawn(move || {
            let lines = runtime.block_on(client.attempts(number, &locks, hold, end_ns));
            (lines, client, runtime)
        })
    };
    let running: Vec<_> = clients.into_iter().map(start).collect();
    // The connections stay open, because the server counts a close as a read.
    let results: Vec<_> = running.into_iter().map(|thread| thread.join().expect("a client that works")).collect();
    let lines = results.iter().flat_map(|(lines, ..)| lines).map(String::as_str);
    println!("{}", lines.chain(iter::once(DONE)).collect::<Vec<_>>().join("\n"));
    // Waits until the server's counters were read.
    stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
}

fn rslock_version() -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let after = lock.split_once("name = \"rslock\"\nversion = \"").map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).expect("a crate in Cargo.lock")
}
