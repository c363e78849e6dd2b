//! Requests of one connection that wait for messages on one channel.

use std::collections::VecDeque;

use support::Server;

use super::line::{Heard, Line};
use crate::engine::Locks;

/// Commands in one write while the line fills.
const BATCH: usize = 1000;
const CHANNEL: &str = "news";
/// Longer than anything that is measured, in milliseconds. Each wait has a time of its own to end at, as most have.
const LONG: &str = "3600000";

/// One connection, and its requests.
pub struct Crowd {
    line: Line,
    locks: Locks,
    /// The tokens that wait, in their order in line where all are for one lock.
    waiting: VecDeque<String>,
    drawn: usize,
    /// The tokens to which the lock goes, by what has been written.
    next: VecDeque<String>,
    /// Hand-overs that are done, and the messages and the replies to releases and requests that have been read of them.
    done: usize,
    heard: [usize; 3],
}

/// A token of 32 characters, as long as those of redis-py.
pub fn token(number: usize) -> String {
    format!("{number:032x}")
}

/// The key of a lock, which is as long for each.
pub fn key(locks: Locks, number: usize) -> String {
    match locks {
        Locks::One | Locks::Shared(_) => "door".to_owned(),
        Locks::Each => format!("door:{number:07}"),
    }
}

impl Crowd {
    /// A connection that listens, and locks for so many requests to wait for. Somebody else holds them with a lease.
    pub fn open(server: &Server, locks: Locks, count: usize) -> Self {
        let mut line = Line::open(server);
        line.tell(&["SSUBSCRIBE", CHANNEL]);
        line.hear(1);
        let held = if locks == Locks::Each { count } else { 1 };
        let numbers: Vec<usize> = (0..held).collect();
        // Once more, so that the server has rehashed its tables.
        for batch in numbers.chunks(BATCH).chain(numbers.chunks(BATCH)) {
            for &number in batch {
                line.tell(&["SET", &key(locks, number), "holder", "PX", LONG]);
            }
            line.hear(batch.len());
        }
        Self { line, locks, waiting: VecDeque::new(), drawn: 0, next: VecDeque::new(), done: 0, heard: [0; 3] }
    }

    /// Adds a request to the next write.
    fn ask(&mut self) {
        let (key, token) = (key(self.locks, self.drawn), token(self.drawn));
        self.drawn += 1;
        self.line.tell(&["LOCK.ACQUIRE", &key, &token, "PX", LONG, "BLOCK", LONG, "NOTIFY", CHANNEL]);
        self.waiting.push_back(token);
    }

    /// Lets so many requests wait.
    pub fn join(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            (0..batch).for_each(|_| self.ask());
            assert!(self.line.hear(batch).iter().all(|heard| *heard == waiting()), "all have to wait");
            left -= batch;
        }
    }

    /// Lets one request wait, and give up.
    pub fn come_and_go(&mut self) {
        self.join(1);
        let token = self.waiting.pop_back().expect("the request");
        self.drawn -= 1;
        self.line.tell(&["LOCK.RELEASE", &key(self.locks, self.drawn), &token]);
        self.line.hear(2);
    }

    /// Writes down so many hand-overs of the one lock, each a release by whose turn it is by then and a request anew, and
    /// sends them with the next [`send`](Self::send).
    pub fn prepare(&mut self, times: usize) {
        for _ in 0..times {
            let holder = self.waiting.pop_front().expect("somebody who holds the lock");
            self.line.tell(&["LOCK.RELEASE", &key(self.locks, 0), &holder]);
            self.ask();
            self.next.push_back(self.waiting.front().expect("somebody who is next").clone());
        }
    }

    pub fn send(&mut self) {
        self.line.send();
    }

    /// Reads until so many more hand-overs are done: told by message, and both commands answered.
    pub fn finish(&mut self, times: usize) {
        self.done += times;
        // A message comes before the reply to the release, or after it.
        while self.heard.iter().any(|&count| count < self.done) {
            let kind = match self.line.next() {
                Heard::Message(text) => {
                    let next = self.next.pop_front().expect("somebody who is next");
                    assert!(grants(&text, &next), "{next} is next: {}", String::from_utf8_lossy(&text));
                    0
                }
                Heard::Integer(0) => 1,
                heard => {
                    assert_eq!(heard, waiting(), "who asks anew has to wait");
                    2
                }
            };
            self.heard[kind] += 1;
        }
    }

    /// Takes the one lock from its first holder, for the first in line.
    pub fn take_over(&mut self) {
        self.line.tell(&["LOCK.RELEASE", &key(self.locks, 0), "holder"]);
        self.line.hear(2);
    }
}

/// Whether a message grants the lock to a token.
fn grants(text: &[u8], token: &str) -> bool {
    let mut words = text.split(|&byte| byte == b' ');
    words.next() == Some(b"granted") && words.nth(2) == Some(token.as_bytes())
}

fn waiting() -> Heard {
    Heard::Status(b"WAITING".to_vec())
}
