//! What LOCK.INFO and LOCK.WAITERS must show.

use redis_lock::server::Reply;

use super::door::{Door, Place, Trust, Waiting};
use super::recovery::{HeldBack, without_recovery};
use super::spec::{Lock, Ms};
use crate::request::{Form, Verb};

/// What is shown of a lock.
pub(super) struct Shown {
    pub reply: Reply,
    /// It is not sure which connections belong to the session: any may be shown, or none.
    pub any_session: bool,
    pub held_back: HeldBack,
}

impl Shown {
    /// What a request to look at a lock must be answered. `None`: the order of the line is not sure.
    pub fn of(door: &Door, verb: &Verb, held_back: HeldBack, now: Ms) -> Option<Self> {
        let waits = |request: &&Waiting| !request.let_go;
        // Of copies of a request the latest comes first.
        let of_place = |place| move |request| (place, request);
        let line: Vec<(&Place, &Waiting)> =
            door.line.iter().flat_map(|place| place.requests.iter().rev().filter(waits).map(of_place(place))).collect();
        match verb {
            Verb::Waiters { count } => {
                if door.line.iter().any(|place| place.vague) {
                    return None;
                }
                let count = count.map_or(100, usize::from);
                let waiters = line.iter().take(count).map(|(place, request)| waiter(place, request, now)).collect();
                Some(Self { reply: Reply::Array(waiters), any_session: false, held_back })
            }
            _ => Some(info(door, line.len(), held_back, now)),
        }
    }

    /// Whether this is what was shown.
    pub fn is(&self, reply: &Reply) -> bool {
        let reply = &without_recovery(reply, &self.held_back);
        *reply == self.reply || self.any_session && without_session(reply) == without_session(&self.reply)
    }
}

fn info(door: &Door, waiters: usize, held_back: HeldBack, now: Ms) -> Shown {
    let lock = door.lock(now);
    let session = lock.holder().and_then(|held| door.session_of(&held.who));
    let clients = session.into_iter().flat_map(|session| &session.clients).map(|&client| Reply::Integer(client));
    let (state, owner, holds, lease) = match &lock {
        Lock::Held(held) => {
            let lease = held.until.map_or(-1, |until| until - now);
            (name_of(held.who.form), Reply::Bytes(held.who.name.clone()), held.holds, lease)
        }
        Lock::Shared(shares) => {
            // Somebody else may have had the key expire earlier.
            let ends: Option<Vec<_>> = shares.held.values().copied().collect();
            let last = ends.and_then(|ends| ends.into_iter().max());
            let last = last.into_iter().chain(door.entry.as_ref().and_then(|entry| entry.expiry)).min();
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
        ("session", Reply::Array(clients.collect())),
        ("recovery-ms", Reply::Integer(0)),
    ];
    Shown {
        reply: map(pairs),
        any_session: session.is_some_and(|session| session.trust != Trust::Sure || session.may_be_later),
        held_back,
    }
}

fn waiter(place: &Place, request: &Waiting, now: Ms) -> Reply {
    map([
        ("token", Reply::Bytes(place.who.name.clone())),
        ("kind", text(name_of(place.who.form))),
        ("limit", Reply::Integer(place.limit().unwrap_or_default())),
        ("waited-ms", Reply::Integer((now - place.since).max(0))),
        ("remaining-ms", Reply::Integer(request.deadline.map_or(-1, |deadline| (deadline - now).max(0)))),
        ("client-id", Reply::Integer(request.client)),
        ("channel", request.channel.clone().map_or(Reply::Nil, Reply::Bytes)),
    ])
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
