//! The workers in Rust: this program, which starts itself again.

use std::io::{Read, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, iter, thread};

use clap::Args;
use tokio::runtime::Runtime;

use super::worker::{DONE, READY, STRIDE, now_ns};
use crate::place::runtime;
use crate::protocols::{Client, Protocol};

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

/// Connects, and lets the server know the scripts.
async fn connect(options: &Options, number: usize) -> Client {
    let protocol = Protocol::named(&options.peer).expect("the name of a protocol");
    let mut client = protocol.connect(options.port, number).await;
    let lock = format!("warm-up:{number}");
    client.acquire(&lock).await;
    client.release(&lock).await;
    client
}

/// The attempts until `end_ns`, as lines.
async fn attempts(client: &mut Client, number: usize, locks: &[String], hold: Duration, end_ns: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for lock in locks.iter().cycle().skip(number * STRIDE % locks.len()) {
        let begun = now_ns();
        if begun >= end_ns {
            break;
        }
        let key = format!("lock:{lock}");
        client.acquire(&key).await;
        let granted = now_ns();
        // A sleep of the runtime is only exact to milliseconds. The thread is this client's alone.
        thread::sleep(hold);
        lines.push(format!("{number} {lock} {begun} {granted} {}", now_ns()));
        client.release(&key).await;
    }
    lines
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
            let client = runtime.block_on(connect(options, number));
            (number, runtime, client)
        })
        .collect();
    println!("{READY}");

    let mut line = String::new();
    stdin().read_line(&mut line).expect("a line");
    let (hold, end_ns) = (Duration::from_millis(options.hold_ms), line.trim_end().parse().expect("a time"));
    let start = |(number, runtime, mut client): (usize, Runtime, Client)| {
        let locks = Arc::clone(&locks);
        thread::spawn(move || {
            let lines = runtime.block_on(attempts(&mut client, number, &locks, hold, end_ns));
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
