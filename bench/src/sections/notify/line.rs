//! One RESP3 connection that reads its messages between its replies.

use std::io::{Read, Write};
use std::net::TcpStream;

use redis_protocol::resp3::decode::complete::decode;
use redis_protocol::resp3::types::OwnedFrame;
use support::connection::packed;
use support::{PATIENCE, Server};

const READ_BUFFER: usize = 64 * 1024;

/// A blocking connection. What is told to the server leaves in one write.
pub struct Line {
    stream: TcpStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// So much of it has been read.
    used: usize,
    buffer: Box<[u8]>,
}

/// Something that the server has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Integer(i64),
    Status(Vec<u8>),
    /// The text of a message on a channel.
    Message(Vec<u8>),
    Other,
}

impl Heard {
    fn of(frame: OwnedFrame) -> Self {
        match frame {
            OwnedFrame::Number { data, .. } => Self::Integer(data),
            OwnedFrame::SimpleString { data, .. } => Self::Status(data),
            OwnedFrame::SimpleError { data, .. } => panic!("the server answered: {data}"),
            OwnedFrame::Push { data, .. } => match data.as_slice() {
                [kind, _, OwnedFrame::BlobString { data: text, .. }] if is_text(kind, b"smessage") => {
                    Self::Message(text.clone())
                }
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

fn is_text(frame: &OwnedFrame, text: &[u8]) -> bool {
    matches!(frame, OwnedFrame::BlobString { data, .. } if data == text)
}

impl Line {
    pub fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a server that takes connections");
        stream.set_nodelay(true).expect("a socket that sends at once");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket that waits");
        let buffer = vec![0; READ_BUFFER].into_boxed_slice();
        let mut line = Self { stream, outgoing: Vec::new(), incoming: Vec::new(), used: 0, buffer };
        line.tell(&["HELLO", "3"]);
        line.hear(1);
        line
    }

    /// Adds a command to the next write.
    pub fn tell(&mut self, words: &[&str]) {
        self.outgoing.extend_from_slice(&packed(words));
    }

    /// Sends what is to be sent.
    pub fn send(&mut self) {
        self.stream.write_all(&self.outgoing).expect("a connection that takes commands");
        self.outgoing.clear();
    }

    /// The next reply or message.
    pub fn next(&mut self) -> Heard {
        loop {
            let rest = self.incoming.get(self.used..).unwrap_or_default();
            if let Some((frame, length)) = decode(rest).expect("replies in RESP3") {
                self.used += length;
                return Heard::of(frame);
            }
            self.incoming.drain(..self.used);
            self.used = 0;
            let read = self.stream.read(&mut self.buffer).expect("a server that answers");
            assert!(read > 0, "the server closed the connection");
            self.incoming.extend_from_slice(self.buffer.get(..read).unwrap_or_default());
        }
    }

    /// Sends what is to be sent, and returns so many replies and messages, in the order in which they come.
    pub fn hear(&mut self, count: usize) -> Vec<Heard> {
        self.send();
        (0..count).map(|_| self.next()).collect()
    }

    /// One round trip of PING.
    pub fn ping(&mut self) {
        self.tell(&["PING"]);
        assert_eq!(self.hear(1), [Heard::Status(b"PONG".to_vec())]);
    }
}
