//! One connection: bytes to be sent, and replies read off it. It never blocks.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

pub type Reply = OwnedFrame;

pub struct Connection {
    stream: TcpStream,
    /// What is to be sent.
    pub outgoing: Vec<u8>,
    /// The beginning of a reply whose end has not come yet.
    unfinished: Vec<u8>,
}

impl Connection {
    /// Connects and tells `registry` to report on it under `token`.
    pub fn open(server: SocketAddr, registry: &Registry, token: Token) -> Self {
        let stream = std::net::TcpStream::connect(server).expect("a server that takes connections");
        stream.set_nodelay(true).expect("a socket that sends at once");
        stream.set_nonblocking(true).expect("a socket that does not block");
        let mut stream = TcpStream::from_std(stream);
        // Reports are given when something changes, so that asking for both costs nothing as long as writes go through.
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE).expect("a socket to watch");
        Self { stream, outgoing: Vec::new(), unfinished: Vec::new() }
    }

    /// Sends what is to be sent; what the socket does not take waits for the next call.
    pub fn flush(&mut self) {
        let mut sent = 0;
        while let Some(rest) = self.outgoing.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection broke: {error}"),
            }
        }
        self.outgoing.drain(..sent);
    }

    /// Reads all that has come and appends the replies that are complete.
    pub fn receive(&mut self, buffer: &mut [u8], replies: &mut VecDeque<Reply>) {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => panic!("the server closed the connection"),
                Ok(count) => {
                    self.take_in(buffer.get(..count).unwrap_or_default(), replies);
                    // A buffer that was not filled has emptied the socket: what comes later is reported anew.
                    if count < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection broke: {error}"),
            }
        }
    }

    fn take_in(&mut self, bytes: &[u8], replies: &mut VecDeque<Reply>) {
        if self.unfinished.is_empty() {
            let used = decode_all(bytes, replies);
            self.unfinished.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            self.unfinished.extend_from_slice(bytes);
            let used = decode_all(&self.unfinished, replies);
            self.unfinished.drain(..used);
        }
    }
}

/// Appends every complete reply and returns how many bytes they were.
fn decode_all(bytes: &[u8], replies: &mut VecDeque<Reply>) -> usize {
    let mut used = 0;
    while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
        match decode(rest).expect("replies in RESP2") {
            Some((reply, length)) => {
                replies.push_back(reply);
                used += length;
            }
            None => break,
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_complete_or_left() {
        let mut replies = VecDeque::new();
        let used = decode_all(b":1\r\n$-1\r\n*-1\r\n$5\r\nhel", &mut replies);
        assert_eq!(used, 4 + 5 + 5);
        assert_eq!(replies, [Reply::Integer(1), Reply::Null, Reply::Null]);
    }
}
