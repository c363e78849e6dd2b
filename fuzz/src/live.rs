//! A real server with the module, which lives as long as the fuzzer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, Server, Setup};

use crate::parts::{CONNECTIONS, Part};

/// How soon the server has forgotten those whose connections it has closed. After each time in which it stood still, because the
/// machine was busy, it waits for more than a second first.
const FORGETTING: Duration = Duration::from_secs(30);
/// The fuzzer's connections may use everything but what ends the server, changes it, or meets other connections.
const RIGHTS: &str = "ACL SETUSER default -@admin -@dangerous +lock.queues +lock.slowlog";

pub struct Live {
    server: Server,
    /// A connection whose user may do everything.
    control: Client,
}

impl Live {
    /// Starts the server. It ends with this thread, as a fuzzer drops nothing.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Self {
        let server = Setup::new().run_by(&["setpriv", "--pdeathsig", "KILL"]).start();
        let mut control = server.client();
        control.ok("ACL SETUSER control on nopass ~* &* +@all");
        control.ok("AUTH control any");
        control.ok(RIGHTS);
        Self { server, control }
    }

    /// Sends the parts, closes all connections, and sees that nothing is left of them.
    ///
    /// # Panics
    /// If a connection is not closed, or the server has died, caught a panic, or does not forget who has left.
    pub fn feed(&mut self, parts: &[Part<'_>]) {
        let mut streams: [TcpStream; CONNECTIONS] = std::array::from_fn(|_| self.open());
        for &(connection, bytes) in parts {
            // It fails where the server has hung up on what came before.
            let _ = streams[connection].write_all(bytes);
        }
        streams.into_iter().for_each(read_to_end);
        self.is_as_before();
    }

    fn open(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.port())).expect("a server that takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a connection with a time-out");
        stream.set_nodelay(true).expect("a connection without delay");
        stream
    }

    fn is_as_before(&mut self) {
        let begun = Instant::now();
        while let Some(left) = self.left() {
            assert!(begun.elapsed() < FORGETTING, "all have gone, and the server has {left}");
        }
        self.control.ok("FLUSHALL");
        let log = self.server.log();
        assert!(!log.contains("panicked at"), "{log}");
    }

    /// What the server has of clients that have left, if anything.
    fn left(&mut self) -> Option<String> {
        let mut count = |name| self.control.info("lock", name).expect("a server that answers, with the module's field");
        ["lock_waiters", "lock_sessions"]
            .map(|name| (name, count(name)))
            .into_iter()
            .find_map(|(name, count)| if count == "0" { None } else { Some(format!("{name} {count}")) })
    }
}

/// Says that nothing more comes, and waits until the server has hung up.
fn read_to_end(mut stream: TcpStream) {
    // It fails where the server has hung up already.
    let _ = stream.shutdown(Shutdown::Write);
    let mut buffer = [0; 1 << 14];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            // The fuzzer's own alarm, which looks for inputs that take too long.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("a connection that the server does not close: {error}"),
        }
    }
}
