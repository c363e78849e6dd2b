//! What the contract says a command does to a lock that is as it is: written from the contract alone.

use redis_lock::server::{Entry, Value};

use crate::request::{Form, Request, Take, Verb};

/// Milliseconds since the Unix epoch.
pub type Ms = i64;

/// What a key says about its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Free,
    Held(Held),
    /// The key is no lock.
    Other,
}

/// A holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub who: Who,
    pub holds: i64,
    pub until: Option<Ms>,
}

/// An identity in one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub form: Form,
    pub name: Vec<u8>,
}

/// What comes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is so then, and the reply is this.
    Done { after: Lock, reply: i64 },
    /// Somebody else holds it: nil, or wait.
    Contended,
    /// An error with this code; nothing changes.
    Refused(&'static str),
    /// Nothing changes, whatever the reply.
    Looked,
}

impl Lock {
    /// Reads a key at a time.
    pub fn of(entry: Option<&Entry>, now: Ms) -> Self {
        let Some(entry) = entry.filter(|entry| !entry.is_over(now)) else { return Self::Free };
        let until = entry.expiry;
        match &entry.value {
            Value::String(token) => {
                Self::Held(Held { who: Who { form: Form::Mutex, name: token.to_vec() }, holds: 1, until })
            }
            Value::Hash(fields) if fields.len() == 1 => {
                let (owner, holds) = fields.first_key_value().expect("one field");
                let digits =
                    std::str::from_utf8(holds).ok().filter(|digits| digits.starts_with(|c| ('1'..='9').contains(&c)));
                let holds = digits.and_then(|digits| digits.parse().ok());
                match holds.filter(|&holds: &i64| holds >= 1) {
                    Some(holds) => {
                        Self::Held(Held { who: Who { form: Form::Reentrant, name: owner.clone() }, holds, until })
                    }
                    None => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }

    pub fn holder(&self) -> Option<&Held> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    pub fn is_held_by(&self, who: &Who) -> bool {
        self.holder().is_some_and(|held| held.who == *who)
    }
}

impl Held {
    fn lengthened(&self, lease: Option<i64>, now: Ms) -> Option<Ms> {
        match (self.until, lease) {
            (Some(until), Some(lease)) => Some(until.max(now + lease)),
            (until, _) => until,
        }
    }

    fn with(&self, holds: i64, lease: Option<i64>, now: Ms) -> Outcome {
        let after = Self { holds, until: self.lengthened(lease, now), who: self.who.clone() };
        Outcome::Done { after: Lock::Held(after), reply: holds }
    }
}

/// What comes of a request that meets a lock. `name` is the identity's bytes.
pub fn outcome(request: &Request, name: &[u8], lock: &Lock, now: Ms) -> Outcome {
    match &request.verb {
        Verb::Take(take) => taken(take, name, lock, now),
        Verb::Release { hold, lease } => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(held) => released(held, *hold, *lease, now),
        },
        Verb::Extend { lease, add } => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(held) => match held.until {
                None => Outcome::Refused("NOLEASE"),
                Some(until) => {
                    let end = if *add { until.max(now) + lease } else { now + lease };
                    let after = Lock::Held(Held { until: Some(end), ..held.clone() });
                    Outcome::Done { after, reply: end - now }
                }
            },
        },
        Verb::Fence => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(_) => Outcome::Looked,
        },
        Verb::Info | Verb::Waiters { .. } => match lock {
            Lock::Other => Outcome::Refused("WRONGTYPE"),
            _ => Outcome::Looked,
        },
        Verb::Nonsense(_) => Outcome::Refused("ERR"),
    }
}

/// The lock, if the caller holds it in either form.
fn own<'l>(lock: &'l Lock, name: &[u8]) -> Result<&'l Held, &'static str> {
    match lock {
        Lock::Free => Err("NOTHELD"),
        Lock::Other => Err("WRONGTYPE"),
        Lock::Held(held) if held.who.name == name => Ok(held),
        Lock::Held(_) => Err("NOTOWNER"),
    }
}

fn taken(take: &Take, name: &[u8], lock: &Lock, now: Ms) -> Outcome {
    let who = Who { form: take.form, name: name.to_vec() };
    let is_first = take.hold.is_none_or(|hold| hold == 1);
    match lock {
        Lock::Other => Outcome::Refused("WRONGTYPE"),
        Lock::Free if is_first => {
            let held = Held { who, holds: 1, until: take.lease.map(|lease| now + lease) };
            Outcome::Done { after: Lock::Held(held), reply: 1 }
        }
        Lock::Free => Outcome::Refused("NOTHELD"),
        Lock::Held(held) if held.who == who && !take.strict => again(take, held, now),
        Lock::Held(_) if is_first => Outcome::Contended,
        Lock::Held(_) => Outcome::Refused("NOTOWNER"),
    }
}

/// The holder asks again.
fn again(take: &Take, held: &Held, now: Ms) -> Outcome {
    let holds = match (take.form, take.hold) {
        (Form::Mutex, _) => held.holds,
        (Form::Reentrant, None) => held.holds + 1,
        (Form::Reentrant, Some(hold)) if hold == held.holds || hold == held.holds + 1 => hold,
        _ => return Outcome::Refused("HOLDMISMATCH"),
    };
    if take.session && held.until.is_none() {
        return Outcome::Refused("NOLEASE");
    }
    held.with(holds, take.lease, now)
}

fn released(held: &Held, hold: Option<i64>, lease: Option<i64>, now: Ms) -> Outcome {
    match hold {
        Some(hold) if hold - 1 == held.holds => return held.with(held.holds, lease, now),
        Some(hold) if hold != held.holds => return Outcome::Refused("HOLDMISMATCH"),
        _ => {}
    }
    if held.holds == 1 {
        return Outcome::Done { after: Lock::Free, reply: 0 };
    }
    held.with(held.holds - 1, lease, now)
}
