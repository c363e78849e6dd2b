//! A real server with the module. It runs as long as the fuzzer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use support::{Client, PATIENCE, Server, Setup};

use crate::parts::{CONNECTIONS, Part};

/// The time in which the server must forget the clients whose connections it has closed. On a busy machine the server
/// may stall. After each stall it suspends its work for more than a second.
const FORGETTING: Duration = Duration::from_secs(30);
/// The rights of the fuzzer's connections: all commands except those that stop the server, change it, or affect other
/// connections.
const RIGHTS: &str = "ACL SETUSER default -@admin -@dangerous +lock.queues +lock.slowlog";

pub struct Live {
    server: Server,
    /// A connection whose user may run all commands.
    control: Client,
}

impl Live {
    /// Starts the server. The server ends with this thread, because a fuzzer runs no destructors.
    ///
    /// # Panics
    ///
    /// If the server does not start.
    pub fn start() -> Self {
        let server = Setup::new().run_by(&["setpriv", "--pdeathsig", "KILL"]).start();
        let mut control = server.client();
        control.ok("ACL SETUSER control on nopass ~* &* +@all");
        control.ok("AUTH control any");
        control.ok(RIGHTS);
        Self { server, control }
    }

    /// Sends the parts, closes all connections, and checks that the server keeps nothing of them.
    ///
    /// # Panics
    ///
    /// If the server does not close a connection, has died, has caught a panic, or does not forget the disconnected
    /// clients.
    pub fn feed(&mut self, parts: &[Part<'_>]) {
        let mut streams: [TcpStream; CONNECTIONS] = std::array::from_fn(|_| self.open());
        for &(connection, bytes) in parts {
            // Fails if the server has closed the connection because of earlier bytes.
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

    /// Returns what the server keeps of disconnected clients, if anything.
    fn left(&mut self) -> Option<String> {
        let mut count = |name| self.control.info("lock", name).expect("a server that answers, with the module's field");
        ["lock_waiters", "lock_sessions"]
            .map(|name| (name, count(name)))
            .into_iter()
            .find_map(|(name, count)| if count == "0" { None } else { Some(format!("{name} {count}")) })
    }
}

/// Shuts down the sending side, and waits until the server has closed the connection.
fn read_to_end(mut stream: TcpStream) {
    // Fails if the server has already closed the connection.
    let _ = stream.shutdown(Shutdown::Write);
    let mut buffer = [0; 1 << 14];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            // The fuzzer's alarm, with which it finds inputs that take too long.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("a connection that the server does not close: {error}"),
        }
    }
}
