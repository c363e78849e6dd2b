//! The effect of a command on a lock, written from the contract alone.

use std::collections::BTreeMap;
use std::fmt;

use redis_lock::server::{Entry, Members, Score, Value};

use crate::request::{Form, Request, Take, Verb, counter_of};

/// Milliseconds since the Unix epoch.
pub type Ms = i64;

/// The state of a lock, as its key says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    Free,
    /// Held by one holder exclusively.
    Held(Held),
    Shared(Shares),
    /// The key is no lock.
    Other,
}

/// The shares that are held.
#[derive(Clone, Debug)]
pub struct Shares {
    /// The tokens, with the ends of their leases.
    pub held: BTreeMap<Vec<u8>, Option<Ms>>,
    /// The expiry of the key, which an external write may have brought forward.
    expiry: Option<Ms>,
}

/// Equal if the same tokens hold shares until the same times.
impl PartialEq for Shares {
    fn eq(&self, other: &Self) -> bool {
        self.held == other.held
    }
}

impl Eq for Shares {}

/// A holder of the lock, or of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub who: Who,
    pub holds: i64,
    pub until: Option<Ms>,
}

/// A claim: an identity in one form.
#[derive(Clone, PartialEq, Eq)]
pub struct Who {
    pub form: Form,
    pub name: Vec<u8>,
}

impl fmt::Debug for Who {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?} of {}", self.form, self.name.escape_ascii())
    }
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock changes to `after`, and the reply is `reply`.
    Done { after: Lock, reply: i64, sets_lease: bool },
    /// Another client holds the lock. The reply is nil, or the request waits.
    Contended,
    /// The reply is an error with this code. Nothing changes.
    Refused(&'static str),
    /// Nothing changes. The reply may be anything.
    Inspected,
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
            Value::SortedSet(members) => Shares::of(members, until, now).map_or(Self::Other, Self::Shared),
            _ => Self::Other,
        }
    }

    /// Returns the holder of a lock that is held exclusively.
    pub fn holder(&self) -> Option<&Held> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    /// Returns all holders: the exclusive one, or those of the shares.
    pub fn holders(&self) -> Vec<Held> {
        match self {
            Self::Held(held) => vec![held.clone()],
            Self::Shared(Shares { held, .. }) => held.iter().map(|(name, &until)| Held::share(name, until)).collect(),
            Self::Free | Self::Other => Vec::new(),
        }
    }

    /// Returns the hold of this holder, if it has one.
    pub fn held_by(&self, who: &Who) -> Option<Held> {
        match self {
            Self::Held(held) => Some(held.clone()).filter(|held| held.who == *who),
            Self::Shared(Shares { held, .. }) if who.form == Form::Share => {
                held.get(&who.name).map(|&until| Held::share(&who.name, until))
            }
            _ => None,
        }
    }

    /// Returns the end of a holder's lease. A share also ends with the key, if an external write has brought that
    /// forward.
    pub fn end_of_lease(&self, held: &Held) -> Option<Ms> {
        match self {
            Self::Shared(shares) => [held.until, shares.expiry].into_iter().flatten().min(),
            _ => held.until,
        }
    }

    /// Returns the same shares in a key with another expiry.
    pub fn expiring(&self, expiry: Option<Ms>) -> Self {
        match self {
            Self::Shared(Shares { held, .. }) => Self::Shared(Shares { held: held.clone(), expiry }),
            other => other.clone(),
        }
    }

    pub fn is_held_by(&self, who: &Who) -> bool {
        self.held_by(who).is_some()
    }

    /// Returns whether the lock is free or has shares.
    pub fn may_be_shared(&self) -> bool {
        matches!(self, Self::Free | Self::Shared(_))
    }

    /// Returns whether the lock has capacity for a waiter of this form.
    pub fn has_capacity(&self, form: Form, limit: Option<i64>) -> bool {
        match self {
            Self::Free => true,
            Self::Shared(shares) => form == Form::Share && shares.have_capacity(limit),
            Self::Held(_) | Self::Other => false,
        }
    }
}

impl Shares {
    /// Reads the members of a Sorted Set. Returns `None` if they are the data of another application: a score is no
    /// whole number of milliseconds, the highest score has expired, or the highest score is finite and the key does not
    /// expire.
    fn of(members: &Members, expiry: Option<Ms>, now: Ms) -> Option<Self> {
        const BEYOND: f64 = 9_007_199_254_740_992.0;
        let is_ours = |Score(score): &Score| *score == f64::INFINITY || score.fract() == 0.0 && score.abs() < BEYOND;
        let (lowest, highest) = (members.values().min()?, members.values().max()?);
        let holds = |Score(score): &Score| *score >= now as f64;
        if !is_ours(lowest) || !is_ours(highest) || !holds(highest) || highest.0.is_finite() && expiry.is_none() {
            return None;
        }
        let held = members.iter().filter(|(_, score)| holds(score));
        Some(Self { held: held.map(|(name, score)| (name.clone(), end_of(*score))).collect(), expiry })
    }

    /// Returns whether there is capacity for one more share.
    pub fn have_capacity(&self, limit: Option<i64>) -> bool {
        limit.is_none_or(|limit| (self.held.len() as i64) < limit)
    }

    fn with(&self, name: &[u8], until: Option<Ms>) -> Self {
        let one = (name.to_vec(), until);
        let others = self.held.clone().into_iter().filter(|(other, _)| other != name);
        Self { held: others.chain([one]).collect(), expiry: self.expiry }
    }

    /// Returns the lock without this share.
    fn without(&self, name: &[u8]) -> Lock {
        let held: BTreeMap<_, _> = self.held.clone().into_iter().filter(|(other, _)| other != name).collect();
        if held.is_empty() { Lock::Free } else { Lock::Shared(Self { held, expiry: self.expiry }) }
    }
}

/// Returns the end of a share with this score. `None`: it never ends.
pub fn end_of(Score(score): Score) -> Option<Ms> {
    score.is_finite().then_some(score as Ms)
}

/// Returns the latest end among the members of a Sorted Set. `None`: the value has another type, or is empty.
pub fn latest_end(entry: &Entry) -> Option<Option<Ms>> {
    match &entry.value {
        Value::SortedSet(members) => members.values().max().map(|&score| end_of(score)),
        _ => None,
    }
}

/// Returns the number in a key.
pub fn number(entry: Option<&Entry>) -> Option<i64> {
    match entry.map(|entry| &entry.value) {
        Some(Value::String(digits)) => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// Returns whether a key is the counter of fencing tokens of the request.
pub fn is_counter(key: &[u8], request: &Request) -> bool {
    matches!(request.verb, Verb::Fence) && *key == *counter_of(request.lock)
}

impl Who {
    /// Returns whether both may hold the lock at the same time, because they have shares.
    pub fn can_hold_with(&self, who: &Self) -> bool {
        self.form == Form::Share && who.form == Form::Share && self.name != who.name
    }
}

impl Outcome {
    /// Returns whether the caller becomes a holder by this outcome.
    pub fn takes(&self, lock: &Lock) -> bool {
        let is_new = |held: &Held| !lock.is_held_by(&held.who);
        matches!(self, Self::Done { after, .. } if after.holders().iter().any(is_new))
    }

    /// Returns the outcome if there are waiters that could get the lock.
    pub fn behind_others(self) -> Self {
        if matches!(self, Self::Done { .. }) { Self::Contended } else { self }
    }
}

impl Held {
    pub fn share(name: &[u8], until: Option<Ms>) -> Self {
        Self { who: Who { form: Form::Share, name: name.to_vec() }, holds: 1, until }
    }

    fn lengthened(&self, lock: &Lock, lease: Option<i64>, now: Ms) -> Option<Ms> {
        lease.map(|lease| now + lease).filter(|end| lock.end_of_lease(self).is_some_and(|until| *end > until))
    }

    fn with(&self, lock: &Lock, holds: i64, lease: Option<i64>, now: Ms) -> Outcome {
        let longer = self.lengthened(lock, lease, now);
        let after = Self { holds, until: longer.or(self.until), who: self.who.clone() };
        Outcome::Done { after: after.on(lock), reply: holds, sets_lease: longer.is_some() }
    }

    /// Returns the lock with this holder, among the shares if it has shares.
    fn on(self, lock: &Lock) -> Lock {
        match lock {
            Lock::Shared(shares) => Lock::Shared(shares.with(&self.who.name, self.until)),
            _ if self.who.form == Form::Share => {
                Lock::Shared(Shares { expiry: self.until, held: [(self.who.name, self.until)].into() })
            }
            _ => Lock::Held(self),
        }
    }

    /// Returns the lock without this holder.
    fn off(&self, lock: &Lock) -> Lock {
        match lock {
            Lock::Shared(shares) => shares.without(&self.who.name),
            _ => Lock::Free,
        }
    }
}

/// Returns the outcome of a request for a lock. `name` is the token or owner.
pub fn outcome(request: &Request, name: &[u8], lock: &Lock, now: Ms) -> Outcome {
    match &request.verb {
        Verb::Take(take) => taken(take, name, lock, now),
        Verb::Release { hold, lease } => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(held) => released(&held, lock, *hold, *lease, now),
        },
        Verb::Extend { lease, add } => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(held) => match lock.end_of_lease(&held) {
                None => Outcome::Refused("NOLEASE"),
                Some(until) => {
                    let end = if *add { until.max(now) + lease } else { now + lease };
                    let after = Held { until: Some(end), ..held };
                    Outcome::Done { after: after.on(lock), reply: end - now, sets_lease: true }
                }
            },
        },
        Verb::Fence => match own(lock, name) {
            Err(code) => Outcome::Refused(code),
            Ok(_) => Outcome::Inspected,
        },
        Verb::Info | Verb::Waiters { .. } => match lock {
            Lock::Other => Outcome::Refused("WRONGTYPE"),
            _ => Outcome::Inspected,
        },
        Verb::Queues { .. } => Outcome::Inspected,
        Verb::Nonsense(_) => Outcome::Refused("ERR"),
    }
}

/// Returns the hold of the caller, in any form.
fn own(lock: &Lock, name: &[u8]) -> Result<Held, &'static str> {
    match lock {
        Lock::Free => Err("NOTHELD"),
        Lock::Other => Err("WRONGTYPE"),
        Lock::Held(_) | Lock::Shared(_) => {
            lock.holders().into_iter().find(|held| held.who.name == name).ok_or("NOTOWNER")
        }
    }
}

fn taken(take: &Take, name: &[u8], lock: &Lock, now: Ms) -> Outcome {
    let who = Who { form: take.form, name: name.to_vec() };
    let is_first = take.hold.is_none_or(|hold| hold == 1);
    let is_share = take.form == Form::Share;
    match (lock, own(lock, name)) {
        (Lock::Other, _) => Outcome::Refused("WRONGTYPE"),
        (_, Ok(held)) if is_share != (held.who.form == Form::Share) => Outcome::Refused("OTHERFORM"),
        (_, Ok(held)) if held.who == who && !take.strict => again(take, &held, lock, now),
        _ if is_first && lock.has_capacity(take.form, take.limit) => {
            let held = Held { who, holds: 1, until: take.lease.map(|lease| now + lease) };
            Outcome::Done { after: held.on(lock), reply: 1, sets_lease: true }
        }
        _ if is_first => Outcome::Contended,
        (Lock::Free, _) => Outcome::Refused("NOTHELD"),
        _ => Outcome::Refused("NOTOWNER"),
    }
}

/// Returns the outcome of a request by the holder.
fn again(take: &Take, held: &Held, lock: &Lock, now: Ms) -> Outcome {
    let holds = match (take.form, take.hold) {
        (Form::Mutex | Form::Share, _) => held.holds,
        (Form::Reentrant, None) => held.holds + 1,
        (Form::Reentrant, Some(hold)) if hold == held.holds || hold == held.holds + 1 => hold,
        _ => return Outcome::Refused("HOLDMISMATCH"),
    };
    if take.session && lock.end_of_lease(held).is_none() {
        return Outcome::Refused("NOLEASE");
    }
    held.with(lock, holds, take.lease, now)
}

fn released(held: &Held, lock: &Lock, hold: Option<i64>, lease: Option<i64>, now: Ms) -> Outcome {
    match hold {
        Some(hold) if hold - 1 == held.holds => return held.with(lock, held.holds, lease, now),
        Some(hold) if hold != held.holds => return Outcome::Refused("HOLDMISMATCH"),
        _ => {}
    }
    if held.holds == 1 {
        return Outcome::Done { after: held.off(lock), reply: 0, sets_lease: false };
    }
    held.with(lock, held.holds - 1, lease, now)
}
