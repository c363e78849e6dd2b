//! What a client asks for with one token.

use crate::history::Kind;
use crate::keys::Key;
use crate::run::Run;
use crate::token::Token;

pub struct Claim<'r> {
    pub key: &'r Key,
    pub token: Token,
    pub kind: Kind,
    /// `None` if the lock is held until it is released.
    pub lease_ms: Option<u64>,
    pub session: bool,
}

impl<'r> Claim<'r> {
    pub fn any(run: &'r Run, key: &'r Key, lease_ms: u64, random: &mut fastrand::Rng) -> Self {
        let kind = match random.u8(..8) {
            0 | 1 => Kind::Reentrant,
            2..5 => Kind::Share,
            _ => Kind::Mutex,
        };
        Self::new(run, key, kind, Some(lease_ms))
    }

    pub fn new(run: &'r Run, key: &'r Key, kind: Kind, lease_ms: Option<u64>) -> Self {
        Self { key, token: run.tokens.fresh(), kind, lease_ms, session: false }
    }

    pub fn request(&self, block_ms: Option<u64>) -> String {
        let option = |name: &str, value: Option<u64>| value.map_or(String::new(), |value| format!(" {name} {value}"));
        let (command, limit) = match self.kind {
            Kind::Mutex => ("ACQUIRE", String::new()),
            Kind::Reentrant => ("REENTER", " HOLD 1".to_owned()),
            Kind::Share => ("SHARE", option("LIMIT", self.key.limit.map(|limit| limit as u64))),
        };
        // The lock of a session with an even lease is kept for half of that after its connection has closed.
        let grace = option("GRACE", self.lease_ms.filter(|lease| lease % 2 == 0).map(|lease| lease / 2));
        let session = if self.session { format!(" SESSION{grace}") } else { String::new() };
        let (lease, block) = (option("PX", self.lease_ms), option("BLOCK", block_ms));
        format!("LOCK.{command} {} {}{lease}{limit}{session}{block}", self.key.name, self.token)
    }

    pub fn release(&self) -> String {
        let hold = if self.kind == Kind::Reentrant { " HOLD 1" } else { "" };
        format!("LOCK.RELEASE {} {}{hold}", self.key.name, self.token)
    }

    pub fn extend(&self, lease_ms: u64) -> String {
        format!("LOCK.EXTEND {} {} PX {lease_ms}", self.key.name, self.token)
    }
}
