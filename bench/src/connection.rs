//! One connection of a client in RESP3, which waits for its replies without blocking a thread.

use redis_protocol::resp3::decode::complete::decode;
use redis_protocol::resp3::types::OwnedFrame;
use support::connection::packed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub type Reply = OwnedFrame;

/// Bytes that can be read at a time.
const READ: usize = 4096;

pub struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// The part of `incoming` that was decoded.
    used: usize,
}

impl Connection {
    pub async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("a server that takes connections");
        stream.set_nodelay(true).expect("a socket that sends without delay");
        let mut connection = Self { stream, incoming: Vec::new(), used: 0 };
        connection.call("HELLO 3").await;
        connection
    }

    /// Sends a command line whose words have no spaces, and returns its reply.
    pub async fn call(&mut self, line: &str) -> Reply {
        self.send(&packed(&support::bytes_of(line))).await;
        self.receive().await
    }

    /// Sends packed commands.
    pub async fn send(&mut self, commands: &[u8]) {
        self.stream.write_all(commands).await.expect("a connection that takes commands");
    }

    /// Returns the next reply or message.
    pub async fn receive(&mut self) -> Reply {
        loop {
            let rest = self.incoming.get(self.used..).unwrap_or_default();
            if let Some((reply, length)) = decode(rest).expect("replies in RESP3") {
                self.used += length;
                if let Reply::SimpleError { data, .. } = &reply {
                    panic!("the server replied: {data}");
                }
                return reply;
            }
            self.incoming.drain(..self.used);
            self.used = 0;
            self.incoming.reserve(READ);
            let read = self.stream.read_buf(&mut self.incoming).await.expect("a server that replies");
            assert!(read > 0, "the server closed the connection");
        }
    }
}

/// The integer of a reply that is one.
pub fn integer(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Number { data, .. } => Some(*data),
        _ => None,
    }
}

/// The bytes of a string.
pub fn bytes(reply: &Reply) -> &[u8] {
    match reply {
        Reply::SimpleString { data, .. } | Reply::BlobString { data, .. } => data,
        _ => &[],
    }
}
