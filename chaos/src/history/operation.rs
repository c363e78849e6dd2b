//! One operation on a lock, as a request asks for it.

use std::time::Duration;

use support::Reply;

use crate::token::Token;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mutex,
    Reentrant,
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire(Kind),
    Extend,
    Release,
    Fence,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub action: Action,
    pub lock: String,
    pub token: Token,
    pub limit: Option<u64>,
    pub hold: Option<i64>,
    pub session: bool,
    pub lease_ms: Option<u64>,
}

impl Kind {
    /// The name in the history, and the name of its counter.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Mutex => ("mutex", "mutexes"),
            Self::Reentrant => ("reentrant", "re-entrant locks"),
            Self::Share => ("share", "shares"),
        }
    }
}

impl Operation {
    pub fn of(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let action = match words.next()? {
            "LOCK.ACQUIRE" => Action::Acquire(Kind::Mutex),
            "LOCK.REENTER" => Action::Acquire(Kind::Reentrant),
            "LOCK.SHARE" => Action::Acquire(Kind::Share),
            "LOCK.EXTEND" => Action::Extend,
            "LOCK.RELEASE" => Action::Release,
            "LOCK.FENCE" => Action::Fence,
            _ => return None,
        };
        let (lock, token) = (words.next()?.to_owned(), Token::read(words.next()?.as_bytes())?);
        let (limit, hold, lease_ms) = (option(line, " LIMIT "), option(line, " HOLD "), option(line, " PX "));
        Some(Self { action, lock, token, limit, hold, session: line.contains(" SESSION"), lease_ms })
    }

    /// Whether it asks for the lock, and not only for another hold of it.
    pub fn asks(&self) -> bool {
        matches!(self.action, Action::Acquire(_)) && self.hold.unwrap_or(1) == 1
    }

    pub fn name(&self) -> &'static str {
        match self.action {
            Action::Acquire(_) => "acquire",
            Action::Extend => "extend",
            Action::Release => "release",
            Action::Fence => "fence",
        }
    }

    /// Returns the outcome in the history. The reply to a client that was unblocked can hide a grant.
    pub fn outcome(&self, reply: Option<&Reply>, is_unblocked: bool) -> &'static str {
        match reply {
            None | Some(Reply::Closed) => "unknown",
            Some(Reply::Int(_)) if self.action == Action::Release => "released",
            Some(Reply::Int(_)) => "granted",
            Some(reply) if *reply == Reply::waiting() => "waiting",
            Some(_) if matches!(self.action, Action::Acquire(_)) && is_unblocked => "unknown",
            Some(_) => "refused",
        }
    }
}

/// Returns for how long a request can block its connection, `None` without an end.
pub fn block_of(line: &str) -> Option<Duration> {
    match option(line, " BLOCK ") {
        Some(0) => None,
        Some(ms) if !line.contains(" NOTIFY ") => Some(Duration::from_millis(ms)),
        _ => Some(Duration::ZERO),
    }
}

fn option<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    line.split_once(name)?.1.split(' ').next()?.parse().ok()
}

#[test]
fn operation_has_the_options_and_the_outcome_of_the_request() {
    let share = Operation::of("LOCK.SHARE s1 t5 PX 20 LIMIT 3 SESSION BLOCK 50").expect("an operation");
    assert_eq!((share.action, share.lock.as_str()), (Action::Acquire(Kind::Share), "s1"));
    assert_eq!((share.limit, share.hold, share.session, share.lease_ms), (Some(3), None, true, Some(20)));
    assert!(Operation::of("LOCK.INFO s1").is_none() && Operation::of("PING").is_none());
    let block = |line| block_of(line).map(|block| block.as_millis());
    assert_eq!([block("X BLOCK 70 NX"), block("X BLOCK 0"), block("X BLOCK 5 NOTIFY c")], [Some(70), None, Some(0)]);
    let replies = [Reply::Closed, Reply::Nil, Reply::waiting(), Reply::Int(1)];
    assert_eq!(replies.map(|reply| share.outcome(Some(&reply), false)), ["unknown", "refused", "waiting", "granted"]);
    assert_eq!([share.outcome(None, false), share.outcome(Some(&Reply::Nil), true)], ["unknown"; 2]);
}
