//! The required replies of LOCK.INFO and LOCK.WAITERS.

use redis_lock::server::Reply;

use super::lock_model::{LockModel, QueueEntry, Trust};
use super::recovery::{GrantSuspension, without_recovery};
use super::spec::{Lock, Ms};
use crate::request::{Form, Verb};

/// The required reply about a lock.
pub(super) struct Shown {
    pub reply: Reply,
    /// Whether it is uncertain which connection the session has. Then any may be shown, or none.
    pub any_session: bool,
    pub suspension: GrantSuspension,
}

impl Shown {
    /// Returns the required reply to a request for information about a lock. `None`: the order of the queue is
    /// uncertain.
    pub fn of(model: &LockModel, verb: &Verb, suspension: GrantSuspension, now: Ms) -> Option<Self> {
        let waits = |entry: &&QueueEntry| entry.request.as_ref().is_some_and(|request| !request.is_unblocked);
        let queue: Vec<&QueueEntry> = model.queue.iter().filter(waits).collect();
        match verb {
            Verb::Waiters { count } => {
                if model.queue.iter().any(|entry| entry.vague) {
                    return None;
                }
                let count = count.map_or(100, usize::from);
                let waiters = queue.iter().take(count).filter_map(|entry| waiter(entry, now)).collect();
                Some(Self { reply: Reply::Array(waiters), any_session: false, suspension })
            }
            _ => Some(info(model, queue.len(), suspension, now)),
        }
    }

    /// Returns whether the reply is a correct one.
    pub fn is(&self, reply: &Reply) -> bool {
        let reply = &without_recovery(reply, &self.suspension);
        *reply == self.reply || self.any_session && without_session(reply) == without_session(&self.reply)
    }
}

fn info(model: &LockModel, waiters: usize, suspension: GrantSuspension, now: Ms) -> Shown {
    let lock = model.lock(now);
    let session = lock.holder().and_then(|held| model.session_of(&held.who));
    let client = session.filter(|session| !session.is_closed()).map(|session| Reply::Integer(session.client));
    let (state, owner, holds, lease) = match &lock {
        Lock::Held(held) => {
            let lease = held.until.map_or(-1, |until| until - now);
            (name_of(held.who.form), Reply::Bytes(held.who.name.clone()), held.holds, lease)
        }
        Lock::Shared(shares) => {
            // An external write may have brought the expiry of the key forward.
            let ends: Option<Vec<_>> = shares.held.values().copied().collect();
            let last = ends.and_then(|ends| ends.into_iter().max());
            let last = last.into_iter().chain(model.entry.as_ref().and_then(|entry| entry.expiry)).min();
            (name_of(Form::Share), Reply::Nil, shares.held.len() as i64, last.map_or(-1, |until| until - now))
        }
        _ => ("free", Reply::Nil, 0, -1),
    };
    let pairs = [
        ("state", text(state)),
        ("owner", owner),
        ("holds", Reply::Integer(holds)),
        ("lease-ms", Reply::Integer(lease)),
        ("waiters", Reply::Integer(waiters as i64)),
        ("session", Reply::Array(client.into_iter().collect())),
        ("recovery-ms", Reply::Integer(0)),
    ];
    Shown { reply: map(pairs), any_session: session.is_some_and(|session| session.trust != Trust::Sure), suspension }
}

fn waiter(entry: &QueueEntry, now: Ms) -> Option<Reply> {
    let request = entry.request.as_ref()?;
    Some(map([
        ("token", Reply::Bytes(entry.who.name.clone())),
        ("kind", text(name_of(entry.who.form))),
        ("limit", Reply::Integer(request.limit.unwrap_or_default())),
        ("waited-ms", Reply::Integer((now - entry.since).max(0))),
        ("remaining-ms", Reply::Integer(request.deadline.map_or(-1, |deadline| (deadline - now).max(0)))),
        ("client-id", Reply::Integer(request.client)),
        ("channel", request.channel.clone().map_or(Reply::Nil, Reply::Bytes)),
    ]))
}

fn without_session(reply: &Reply) -> Reply {
    let Reply::Map(pairs) = reply else { return reply.clone() };
    let mut pairs = pairs.clone();
    pairs.retain(|(name, _)| *name != text("session"));
    Reply::Map(pairs)
}

fn name_of(form: Form) -> &'static str {
    match form {
        Form::Mutex => "mutex",
        Form::Reentrant => "reentrant",
        Form::Share => "shared",
    }
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

pub(super) fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (text(name), value)).collect())
}
