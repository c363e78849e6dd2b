//! One client: its connections, and where it stands.

use std::collections::VecDeque;
use std::net::SocketAddr;

use mio::{Poll, Token};
use redis::Cmd;

use super::connection::{Connection, Reply};
use super::timers::Timers;
use super::wire::{Alarm, Line, Wire};
use crate::protocols::Party;

const LINES: usize = 2;

/// What its timer and its answers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Acquiring,
    /// So many cycles are to be answered.
    Cycling(u32),
    Other,
}

pub struct Member {
    number: usize,
    party: Box<dyn Party>,
    lines: Vec<Connection>,
    pub phase: Phase,
    /// Something that is to be sent has an answer which it waits for.
    awaits: bool,
}

fn token_of(client: usize, line: usize) -> Token {
    Token(client * LINES + line)
}

pub fn of_token(Token(token): Token) -> (usize, Line) {
    (token / LINES, if token % LINES == 0 { Line::Main } else { Line::Channel })
}

impl Member {
    /// Client `number`, with as many connections as it needs.
    pub fn connect(server: SocketAddr, poll: &Poll, number: usize, lines: usize, party: Box<dyn Party>) -> Self {
        let open = |line| Connection::open(server, poll.registry(), token_of(number, line));
        let lines = (0..lines).map(open).collect();
        Self { number, party, lines, phase: Phase::Other, awaits: false }
    }

    /// Lets the client follow its protocol for one step.
    pub fn turn<T>(
        &mut self,
        command: &mut Cmd,
        timers: &mut Timers,
        step: impl FnOnce(&mut dyn Party, &mut Wire<'_>) -> T,
    ) -> T {
        let mut wire = Wire { command, lines: &mut self.lines, alarm: Alarm::Keep, awaits: false };
        let result = step(self.party.as_mut(), &mut wire);
        self.awaits |= wire.awaits;
        match wire.alarm {
            Alarm::Keep => {}
            Alarm::Set(span) => timers.set(self.number, span),
            Alarm::Cancel => timers.cancel(self.number),
        }
        result
    }

    /// Sends what there is to send, and returns whether that makes a round trip on the way to the lock.
    pub fn flush(&mut self) -> bool {
        for connection in &mut self.lines {
            connection.flush();
        }
        std::mem::take(&mut self.awaits) && self.phase == Phase::Acquiring
    }

    pub fn receive(&mut self, line: Line, buffer: &mut [u8], replies: &mut VecDeque<Reply>) {
        let connection = match line {
            Line::Main => self.lines.first_mut(),
            Line::Channel => self.lines.get_mut(1),
        };
        connection.expect("a line that was registered").receive(buffer, replies);
    }
}
