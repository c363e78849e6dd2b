//! A bare TCP connection that speaks the server's protocol, for tests of how a connection ends or is disturbed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::{PATIENCE, bytes_of, patient};

/// One connection. Dropping it closes it.
pub struct RawConnection {
    stream: BufReader<TcpStream>,
}

/// A command line as the bytes that a client library would send.
pub fn encode(line: &str) -> Vec<u8> {
    let words = bytes_of(line);
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

impl RawConnection {
    #[track_caller]
    pub fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody who takes connections");
        stream.set_read_timeout(Some(patient(PATIENCE))).expect("a connection with a time-out");
        stream.set_nodelay(true).expect("a connection without delay");
        Self { stream: BufReader::new(stream) }
    }

    #[track_caller]
    pub fn send(&mut self, line: &str) {
        self.send_bytes(&encode(line));
    }

    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("a connection that takes bytes");
    }

    /// The first line of a reply, with its type byte and without its end; None when the connection is closed.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Sends a command whose reply is one line.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> String {
        self.send(line);
        self.line().expect("an answer")
    }

    /// Says that nothing more will be sent, while the other direction stays open.
    #[track_caller]
    pub fn half_close(&self) {
        self.stream.get_ref().shutdown(Shutdown::Write).expect("an open connection");
    }

    /// Ends the connection with a reset: the kernel sends one when a socket is closed with bytes that nobody has read.
    #[track_caller]
    pub fn reset(mut self) {
        self.send("PING");
        let arrived = self.stream.get_ref().peek(&mut [0]).expect("an answer");
        assert_eq!(arrived, 1, "an answer that stays unread");
    }

    /// Reads whatever comes until the other side closes.
    #[track_caller]
    pub fn drain(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}
