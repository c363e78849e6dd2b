//! The required replies of LOCK.INFO and LOCK.WAITERS.

use redis_lock::server::{ClientId, Reply};

use super::lock_model::{LockModel, QueueEntry, Session};
use super::recovery::{GrantSuspension, without_recovery};
use super::spec::{Lock, Ms};
use crate::request::{Form, Verb};

/// The required reply about a lock.
pub(super) struct Shown {
    pub reply: Reply,
    pub suspension: GrantSuspension,
}

impl Shown {
    /// Returns the required reply to a request for information about a lock. `client` is the open connection of a session.
    pub fn of(
        model: &LockModel,
        verb: &Verb,
        client: impl FnOnce(&Session) -> Option<ClientId>,
        suspension: GrantSuspension,
        now: Ms,
    ) -> Self {
        let waits = |entry: &&QueueEntry| entry.request.as_ref().is_some_and(|request| !request.is_unblocked);
        let queue: Vec<&QueueEntry> = model.queue.iter().filter(waits).collect();
        let reply = match verb {
            Verb::Waiters { count } => {
                let count = count.map_or(100, usize::from);
                Reply::Array(queue.iter().take(count).filter_map(|entry| waiter(entry, now)).collect())
            }
            _ => info(model, queue.len(), client, now),
        };
        Self { reply, suspension }
    }

    /// Returns whether the reply is a correct one.
    pub fn is(&self, reply: &Reply) -> bool {
        without_recovery(reply, &self.suspension) == self.reply
    }
}

fn info(model: &LockModel, waiters: usize, client: impl FnOnce(&Session) -> Option<ClientId>, now: Ms) -> Reply {
    let lock = model.lock(now);
    let session = lock.holder().and_then(|held| model.session_of(&held.who));
    let client = session.and_then(client).map(Reply::Integer);
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
    map(pairs)
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
