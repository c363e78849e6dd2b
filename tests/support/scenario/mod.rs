//! Scenarios: text files with what clients send and what they must receive, for real and simulated servers.
//!
//! ```text
//! # A comment. The lines before the first heading are for all scenarios of the file.
//! config lock.max-waiters 2             a line for the server's configuration
//! only redis 7.2, valkey                other servers do not show it
//! not simulated                         the simulated server does not show it
//! cluster                               the server is a node of a cluster, and has every slot
//! replica                               it has a replica, to which the client `r` connects
//! own server                            no other scenario uses the server
//! witness                               the server has the witness module, which records what servers do, instead of the locks
//! let $WORD = {PX|EX|"P X"}              a text that stands for the name
//! each $TAKE = LOCK.ACQUIRE | LOCK.REENTER           plays it once with each value
//! each $TAKE, $TYPE = LOCK.ACQUIRE, string | LOCK.REENTER, hash
//! each b waits                          plays it once for each way of waiting: blocked | notified | pushed
//! each b waits, c waits                 each way alone, and two ways in both orders
//!
//! ## release_grants_to_waiter           a scenario begins
//! a> $TAKE door alice -> 1              a sends a command, and receives this reply
//! a> SET door x ; GET door -> OK ; x    two commands in one write
//! a> GET {door|gate} -> x               one line for each alternative, which the same text or as many in the reply go with
//! w{1..3}> GET w{1..3} -> {1..3}        the same for the numbers of a range
//! a> PING                               sends without reading the reply
//! a< PONG                               the next reply
//! eventually a> EXISTS door -> 0        repeats the command until this is the reply
//! b> $TAKE door bob BLOCK 0 -> (waits)  there is no reply, and the client waits
//! b> $TAKE door bob BLOCK 9 -> (may wait)                 the same, without a check: the wait can be short
//! b waits                               the client still waits
//! b< 1                                  the reply to the wait, in each way of waiting
//! b hears nothing                       no reply, and no message, has come since
//! a closes
//! now <end>..                           the time in Unix milliseconds, here at least `end`; `now <begin>` gives it a name
//! wait 20                               lets 20 milliseconds pass
//! server stops                          the process is stopped; the server finds what clients do when it goes on
//! server goes on
//! stall 20                              the process is stopped for 20 milliseconds
//! snapshot                              remembers all keys with their values and times
//! unchanged                             they are the same
//! stream: SET door x ; DEL door         the next commands that replicas and the append-only file receive
//! stream: (nothing)                     there is none
//! * del 0 door                          the next lines of the trace of the witness module; `r*` for the replica
//! slot of door migrates                 the slot of this key is on its way to another node
//! slot of door leaves                   it belongs to another node, and the server knows
//! cluster fails                         a slot has no node
//! cluster recovers                      the slot has its node again
//! [redis 7.0, valkey] b< 1              a line for these servers alone; [real] and [simulated] are servers, too
//! [not redis 7.0] b< 1                  a line for all others
//! ```
//!
//! A client connects when it is first named. In commands, double quotes enclose a word, with the escapes of redis-cli
//! (`"\x00\n"`), and `"x"*1025` repeats it; `NX*17` stands for 17 words. `<a>` is the number of the client `a`, and `<now>`, `<now+20>` and `<now-20>` are
//! times in Unix milliseconds.
//!
//! Replies look like those of redis-cli without types: `1`, `alice`, `"1"` for a string of digits, `(nil)`, `[a, b]` for an
//! array, `{a: b}` for a map, `>[a, b]` for a push, `-NOTOWNER ...` for an error, `(closed)` for a closed connection. In an
//! expected reply,
//! - `...` stands for anything,
//! - `-NOTOWNER` is an error with this code,
//! - `<end>` is a number, the same wherever the name is used again, also in commands; `<end+5>` and
//!   `<end-begin>` are sums and differences, `<ms*1000>` a product,
//! - `1 | (nil)` is one of these,
//! - `29000..30000` is an integer in this range; `<end>..<end+5>` and `5..` are ranges, too,
//! - `{holds: 1, owner: alice}` are some fields of a map, of its flat array, or of INFO, in any order.

mod alternatives;
mod notified;
mod parser;
mod pattern;
mod player;
mod stage;
mod words;

pub use parser::parse;
pub use pattern::{Numbers, fits};
pub use player::{message_of, play};
pub use stage::{Snapshot, Stage};

use super::Flavour;

/// One scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scenario {
    /// The name in its heading, with the values of its variables.
    pub name: String,
    /// Lines for the server's configuration.
    pub config: Vec<String>,
    /// The servers that show it; all, if there is none.
    pub only: Vec<String>,
    /// Whether only real servers show it.
    pub not_simulated: bool,
    pub cluster: bool,
    pub replica: bool,
    /// Whether no other scenario uses its server.
    pub own_server: bool,
    /// Whether its server has the witness module instead of the locks.
    pub witness: bool,
    /// The ways in which clients wait, by their names. Others are blocked.
    pub ways: Vec<(String, Way)>,
    pub lines: Vec<Line>,
}

/// How a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is blocked.
    Blocked,
    /// Another connection, with RESP2, listens for the message.
    Notified,
    /// The message comes on the same connection, with RESP3.
    Pushed,
}

/// One step, and its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub number: usize,
    pub text: String,
    /// The servers that it is for; all, if there is none.
    kinds: Vec<String>,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Send {
        client: String,
        commands: Vec<Vec<Vec<u8>>>,
        /// The replies; empty if the line has none.
        replies: Vec<String>,
    },
    /// Repeats the command until this is its reply.
    Eventually {
        client: String,
        command: Vec<Vec<u8>>,
        reply: String,
    },
    Receive {
        client: String,
        reply: String,
    },
    Waits {
        client: String,
    },
    HearsNothing {
        client: String,
    },
    Close {
        client: String,
    },
    /// The next lines of a record. None: no line is left.
    Recorded(Record, Vec<String>),
    /// The range of the time, in Unix milliseconds.
    Now(String),
    Snapshot,
    Unchanged,
    Wait(u64),
    Stall(u64),
    /// Whether the server's process runs.
    Server(bool),
    Cluster(Change),
}

/// What the stage records while a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// The trace of the witness module.
    Trace,
    /// The same in the replica.
    ReplicaTrace,
    /// The commands that replicas and the append-only file receive.
    Stream,
}

/// A change of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Migrates { key: String },
    Leaves { key: String },
    Fails,
    Recovers,
}

impl Scenario {
    /// Returns whether this kind of server shows it.
    pub fn is_shown_by(&self, kind: Flavour, simulated: bool) -> bool {
        are_for(&self.only, kind, simulated)
    }

    /// Returns whether it reads what replicas receive.
    pub fn has_stream(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.step, Step::Recorded(Record::Stream, _)))
    }

    /// Returns whether it needs a server that no other scenario uses.
    pub fn needs_own_server(&self) -> bool {
        let stops = |line: &Line| matches!(line.step, Step::Stall(_) | Step::Server(_));
        self.own_server || self.cluster || self.replica || self.witness || self.lines.iter().any(stops)
    }
}

impl Line {
    /// Returns whether the line is for this server.
    pub fn is_for(&self, kind: Flavour, simulated: bool) -> bool {
        are_for(&self.kinds, kind, simulated)
    }
}

/// Returns whether these kinds of servers, all if there is none, include this one.
fn are_for(kinds: &[String], kind: Flavour, simulated: bool) -> bool {
    let is = |name: &str| match name {
        "real" => !simulated,
        "simulated" => simulated,
        name => kind.is(name),
    };
    kinds.is_empty() || kinds.iter().any(|name| name.strip_prefix("not ").map_or_else(|| is(name), |other| !is(other)))
}
