//! A line of a history, as `chaos --history` writes it. `chaos/src/history/mod.rs` describes the fields.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Line {
    Operation(Operation),
    Message(Message),
    Closed(Closed),
    Fault { at: u64, fault: String },
}

#[derive(Clone, Debug, Deserialize)]
pub struct Operation {
    pub round: u32,
    pub invoked: u64,
    pub completed: Option<u64>,
    pub server: u16,
    pub connection: i64,
    pub database: u32,
    pub external: bool,
    pub lease_ms: Option<u64>,
    pub operation: String,
    pub lock: String,
    pub token: String,
    pub kind: Option<String>,
    pub limit: Option<usize>,
    pub hold: Option<u64>,
    pub session: bool,
    pub outcome: String,
    pub reply: Option<String>,
    pub fence: Option<i64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    pub round: u32,
    pub at: u64,
    pub message: String,
    pub database: u32,
    pub lock: String,
    pub token: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Closed {
    pub round: u32,
    pub since: u64,
    pub at: u64,
    pub closed: i64,
    pub server: u16,
}

/// The name of a lock: the round, the database and the key.
pub type Name = (u32, u32, String);

impl Operation {
    pub fn name(&self) -> Name {
        (self.round, self.database, self.lock.clone())
    }

    /// The reply as a number.
    pub fn number(&self) -> Option<u64> {
        self.reply.as_ref()?.parse().ok()
    }

    /// Whether the reply says that the token does not hold the lock.
    pub fn says_not_held(&self) -> bool {
        let reply = self.reply.as_deref().unwrap_or_default();
        let is_error = reply.starts_with("-NOTHELD") || reply.starts_with("-NOTOWNER");
        self.outcome == "refused" && (is_error || self.operation == "release" && reply == "(nil)")
    }
}
