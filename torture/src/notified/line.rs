//! A connection with the questions on it that are not answered yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::wait::Wait;
use super::wire::Wire;
use crate::pulse::starved;
use crate::token::Token;
use crate::world::World;

/// What an answer may take on a server that is held up by nothing.
const SLACK: Duration = Duration::from_millis(500);

/// What an answer is to.
pub enum What {
    /// A request that is to be told on this channel, of the two.
    Ask(usize),
    /// A copy of the request that blocks, for so long.
    Block(Duration),
    Release,
    /// What makes a transaction of the others.
    Frame,
}

pub struct Question {
    pub token: Token,
    pub what: What,
    pub sent: Instant,
    /// Of the server that was asked.
    pub port: u16,
    /// How long the thread that sent it, and reads the answer, had been starved of the processor by then.
    starved: Duration,
}

/// A connection with what is not answered yet.
pub struct Line {
    pub wire: Wire,
    questions: VecDeque<Question>,
}

impl Line {
    pub fn of(wire: Wire) -> Self {
        Self { wire, questions: VecDeque::new() }
    }

    /// Sends a line, in a transaction if `framed`.
    pub fn put(&mut self, world: &World, wait: &Wait<'_>, line: String, what: What, framed: bool) -> Instant {
        let (token, key, port) = (wait.claim.token, wait.claim.key.number, self.wire.port);
        let note = format!("(connection {}) sends {line}{}", self.wire.id, if framed { " in MULTI" } else { "" });
        let lines = if framed { vec!["MULTI".to_owned(), line, "EXEC".to_owned()] } else { vec![line] };
        let (sent, starved) = (self.wire.send(&lines), starved());
        world.figures.requests.add(lines.len() as u64);
        world.ledger.note(key, sent, format!("notified  {note}"));
        if framed {
            world.figures.met("transactions");
            self.questions.extend([What::Frame, What::Frame].map(|what| Question { token, what, sent, port, starved }));
        }
        self.questions.push_back(Question { token, what, sent, port, starved });
        sent
    }

    pub fn check_time(&self, world: &World, now: Instant) {
        let Some(Question { token, what, sent, starved: before, .. }) = self.questions.front() else { return };
        let block = if let What::Block(block) = what { *block } else { Duration::ZERO };
        let Some(late) = (now - *sent).checked_sub(block + SLACK) else { return };
        let bad = world.weather.between(*sent, now) + starved().saturating_sub(*before);
        if late > bad {
            let text = format!("{token}: an answer is {late:?} late already, of which faults explain {bad:?}");
            world.court.charge("every request is answered", text);
        }
    }

    /// What the next answer is to.
    pub fn next(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }
}
