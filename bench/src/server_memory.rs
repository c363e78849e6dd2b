//! How much memory a server uses, by its own account.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, Server};

/// `used_memory` of a server, on a connection of its own.
pub struct ServerMemory(Client);

impl ServerMemory {
    pub fn of(server: &Server) -> Self {
        let mut observer = server.client();
        // Reply buffers shrink at some time or other: they are left as they are.
        observer.ok("DEBUG REPLYBUFFER RESIZING 0");
        Self(observer)
    }

    /// The connection, for other questions.
    pub fn observer(&mut self) -> &mut Client {
        &mut self.0
    }

    fn now(&mut self) -> f64 {
        let bytes = self.0.info("memory", "used_memory").expect("a server that tells its memory");
        bytes.parse().expect("a number of bytes")
    }

    /// The memory once it has stayed the same for so long: tables are rehashed, and buffers of idle clients given back.
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
