//! One TCP connection that sends bytes and reads replies.
//!
//! The `redis` crate's own connection gives up a read that a stop signal interrupted, as a system call with a time-out is
//! whenever the machine is frozen and thawed; this one reads on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, RedisResult, Value};

use super::patient;

/// A connection that never re-sends and never reconnects by itself.
pub struct Connection {
    stream: ReadingOn<TcpStream>,
    parser: Parser,
}

/// A command as the bytes that a client library would send.
pub fn packed(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.get_packed_command()
}

impl Connection {
    /// Connects within `timeout`, which is also how long a reply may take, and does not wait for anything to be said.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or nobody answers in time.
    pub fn open(port: u16, timeout: Duration) -> io::Result<Self> {
        let timeout = patient(timeout);
        let stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        Ok(Self { stream: ReadingOn(stream), parser: Parser::new() })
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.0.write_all(bytes)
    }

    /// Says how long the next reply may take; zero stands for the shortest time that a socket knows.
    ///
    /// # Errors
    ///
    /// The connection is closed.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.0.set_read_timeout(Some(patient(timeout).max(Duration::from_millis(1))))
    }

    /// Reads one reply, or one message that the server sends unasked.
    ///
    /// # Errors
    ///
    /// The connection is closed, or nothing came in time.
    pub fn receive(&mut self) -> RedisResult<Value> {
        self.parser.parse_value(&mut self.stream)
    }
}

/// A reader that begins an interrupted read again, with the whole time-out.
struct ReadingOn<R>(R);

impl<R: Read> Read for ReadingOn<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose every second read is interrupted.
    struct Disturbed<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for Disturbed<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            let count = buffer.len().min(1);
            self.bytes.read(&mut buffer[..count])
        }
    }

    #[test]
    fn an_interrupted_read_goes_on_where_it_was() {
        let mut stream = ReadingOn(Disturbed { bytes: b"*2\r\n:1\r\n$4\r\ndoor\r\n:2\r\n", interrupted: false });
        let mut parser = Parser::new();
        let first = parser.parse_value(&mut stream).expect("a reply");
        assert_eq!(first, Value::Array(vec![Value::Int(1), Value::BulkString(b"door".to_vec())]));
        assert_eq!(parser.parse_value(&mut stream).expect("a reply"), Value::Int(2));
    }
}
