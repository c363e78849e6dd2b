//! A connection that a thread reads from, so that its client can send many requests and wait for none of them.

use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::connection::{self, packed};
use support::{Reply, bytes_of};

use crate::link::Link;

/// Longer than any run: the thread reads until the connection closes.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

/// Something came from the server.
pub struct Heard {
    /// The number of the wire.
    pub wire: u64,
    pub at: Instant,
    /// The last one of a wire is [`Reply::Closed`].
    pub reply: Reply,
}

/// Dropping it closes the connection.
pub struct Wire {
    pub number: u64,
    /// What CLIENT ID answers for this connection.
    pub id: i64,
    /// Where it leads to.
    pub port: u16,
    sender: connection::Sender,
    reader: Option<JoinHandle<()>>,
}

impl Wire {
    /// Reads from a connection on which no reply is due, and tells `listener`.
    pub fn of(link: Link, number: u64, listener: Sender<Heard>) -> Option<Self> {
        let (id, port, sender) = (link.id(), link.port(), link.sender()?);
        let reader = thread::spawn(move || read(link, number, &listener));
        Some(Self { number, id, port, sender, reader: Some(reader) })
    }

    /// Sends lines, whose words have no spaces, in one write. Returns a moment before the first byte left. If the connection
    /// is closed, the thread tells of it.
    pub fn send(&mut self, lines: &[String]) -> Instant {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| packed(&bytes_of(line))).collect();
        let sent = Instant::now();
        // Fails only where the connection is closed.
        let _ = self.sender.send(&bytes);
        sent
    }
}

fn read(mut link: Link, wire: u64, listener: &Sender<Heard>) {
    loop {
        let reply = link.receive(WITHOUT_END).unwrap_or(Reply::Closed);
        let over = reply == Reply::Closed;
        if listener.send(Heard { wire, at: Instant::now(), reply }).is_err() || over {
            return;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.sender.close();
        if let Some(reader) = self.reader.take() {
            // It has panicked if the answer was not in the server's protocol, and has said so.
            let _ = reader.join();
        }
    }
}
