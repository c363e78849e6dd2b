//! A connection that a thread reads from, so that its client can send many requests and wait for none of them.

use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use support::Reply;

use crate::history::Request;
use crate::link::{Link, LinkSender};

/// Longer than any run: the thread reads until the connection closes.
const WITHOUT_END: Duration = Duration::from_secs(24 * 3600);

/// A reply or a message of the server.
pub struct Received {
    /// The number of the wire.
    pub wire: u64,
    pub at: Instant,
    /// The request that it is the reply to.
    pub request: Option<Request>,
    /// The last one of a wire is [`Reply::Closed`].
    pub reply: Reply,
}

/// Dropping it closes the connection.
pub struct Wire {
    pub number: u64,
    pub port: u16,
    pub sender: LinkSender,
    reader: Option<JoinHandle<()>>,
}

impl Wire {
    /// Reads from a connection on which no reply is due, and sends all to `listener`.
    pub fn of(mut link: Link, number: u64, listener: Sender<Received>) -> Option<Self> {
        let (port, sender) = (link.port(), link.sender()?);
        let read = move || loop {
            let (request, reply) = link.next(WITHOUT_END).unwrap_or((None, Reply::Closed));
            let is_closed = reply == Reply::Closed;
            if listener.send(Received { wire: number, at: Instant::now(), request, reply }).is_err() || is_closed {
                return;
            }
        };
        Some(Self { number, port, sender, reader: Some(thread::spawn(read)) })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.sender.close();
        if let Some(reader) = self.reader.take() {
            // The thread has panicked, and printed why, if a reply was not in the protocol of the server.
            let _ = reader.join();
        }
    }
}
