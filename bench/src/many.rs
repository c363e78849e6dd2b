//! Requests in large numbers, and the memory that a server uses for them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, Server};

/// Commands in one write.
const BATCH: usize = 1000;
const CHANNEL: &str = "grants";
/// Longer than any measurement, in milliseconds.
pub const LONG: &str = "3600000";

/// Runs the commands of each number. None has an error as its reply.
pub fn run_all(client: &mut Client, count: usize, commands: impl Fn(usize) -> Vec<String>) {
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH) {
        let lines: Vec<String> = batch.iter().flat_map(|&number| commands(number)).collect();
        client.send_together(&lines);
        for line in &lines {
            let reply = client.receive();
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
    }
}

/// A connection that subscribes to the messages, and does not read them.
pub fn subscriber(server: &Server) -> Client {
    let mut client = server.client();
    client.run(&format!("SSUBSCRIBE {CHANNEL}"));
    client
}

/// The request that waits for a message about a lock.
pub fn request(command: &str, key: &str, token: &str) -> String {
    format!("{command} {key} {token} PX {LONG} BLOCK {LONG} NOTIFY {CHANNEL}")
}

pub fn token(number: usize) -> String {
    format!("{number:032x}")
}

/// `used_memory` of a server, on a connection of its own.
pub struct ServerMemory(pub Client);

impl ServerMemory {
    pub fn of(server: &Server) -> Self {
        let mut observer = server.client();
        // Reply buffers shrink at random times.
        observer.ok("DEBUG REPLYBUFFER RESIZING 0");
        Self(observer)
    }

    fn now(&mut self) -> f64 {
        self.0.info("memory", "used_memory").and_then(|bytes| bytes.parse().ok()).expect("a number of bytes")
    }

    /// The memory when it has been the same for that time: the server rehashes tables, and frees buffers of idle clients.
    pub fn settled(&mut self, calm: Duration) -> f64 {
        const NOTHING: f64 = 512.0;
        let deadline = Instant::now() + calm * 10 + PATIENCE;
        let (mut bytes, mut since) = (self.now(), Instant::now());
        while since.elapsed() < calm {
            assert!(Instant::now() < deadline, "the server's memory never settled");
            sleep(Duration::from_millis(50));
            let now = self.now();
            if (now - bytes).abs() > NOTHING {
                (bytes, since) = (now, Instant::now());
            }
        }
        bytes
    }
}
