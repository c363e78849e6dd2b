//! What LOCK.INFO and LOCK.WAITERS must show.

use redis_lock::server::Reply;

use super::door::{Door, Place, Trust, Waiting};
use super::spec::{Lock, Ms};
use crate::request::{Form, Verb};

/// What is shown of a lock.
pub(super) struct Shown {
    pub reply: Reply,
    /// The connections of a session that may have ended: they may be left out.
    pub or_no_session: bool,
}

impl Shown {
    /// What a request to look at a lock must be answered. `None`: the order of the line is not sure.
    pub fn of(door: &Door, verb: &Verb, now: Ms) -> Option<Self> {
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
                Some(Self { reply: Reply::Array(waiters), or_no_session: false })
            }
            _ => Some(info(door, line.len(), now)),
        }
    }

    /// Whether this is what was shown.
    pub fn is(&self, reply: &Reply) -> bool {
        *reply == self.reply || self.or_no_session && *reply == without_session(&self.reply)
    }
}

fn info(door: &Door, waiters: usize, now: Ms) -> Shown {
    let lock = door.lock(now);
    let session = door.session.as_ref().filter(|session| lock.is_held_by(&session.who));
    let clients = session.into_iter().flat_map(|session| &session.clients).map(|&client| Reply::Integer(client));
    let (state, owner, holds, lease) = match &lock {
        Lock::Held(held) => {
            let lease = held.until.map_or(-1, |until| until - now);
            (name_of(held.who.form), Reply::Bytes(held.who.name.clone()), held.holds, lease)
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
    ];
    Shown { reply: map(pairs), or_no_session: session.is_some_and(|session| session.trust != Trust::Sure) }
}

fn waiter(place: &Place, request: &Waiting, now: Ms) -> Reply {
    map([
        ("token", Reply::Bytes(place.who.name.clone())),
        ("kind", text(name_of(place.who.form))),
        ("waited-ms", Reply::Integer((now - place.since).max(0))),
        ("remaining-ms", Reply::Integer(request.deadline.map_or(-1, |deadline| (deadline - now).max(0)))),
        ("client-id", Reply::Integer(request.client)),
    ])
}

fn without_session(reply: &Reply) -> Reply {
    let Reply::Map(pairs) = reply else { return reply.clone() };
    let mut pairs = pairs.clone();
    if let Some((_, session)) = pairs.last_mut() {
        *session = Reply::Array(Vec::new());
    }
    Reply::Map(pairs)
}

fn name_of(form: Form) -> &'static str {
    match form {
        Form::Mutex => "mutex",
        Form::Reentrant => "reentrant",
    }
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (text(name), value)).collect())
}
