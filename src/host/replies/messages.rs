//! Messages to waiters whose connections are not blocked.
//!
//! A message is `<event> <lease end> <db> <token> <key>`. The server sends it with the replies of this event-loop iteration, and
//! returns the number of its subscribers immediately.

use std::rc::Rc;

use crate::core::{EndReason, UnixMs, format_integer};
use crate::host::state;
use crate::server::{self, OwnedString, Server};

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lock is granted, with this end of its lease.
    Granted(UnixMs),
    /// The wait has timed out.
    TimedOut,
    /// RELEASE has cancelled the wait.
    Withdrawn,
    /// A later request of the owner has taken the place of this one.
    Replaced,
    /// This server cannot continue the wait.
    Aborted,
}

impl Event {
    /// Returns the reason for the slow log.
    pub fn reason(self) -> EndReason {
        match self {
            Self::Granted(_) => EndReason::Granted,
            Self::TimedOut => EndReason::TimedOut,
            Self::Withdrawn => EndReason::Withdrawn,
            Self::Replaced => EndReason::Replaced,
            Self::Aborted => EndReason::Lost,
        }
    }
}

/// The lock and the token of a waiter.
#[derive(Clone, Copy)]
pub struct Subject<'s> {
    pub db: i32,
    pub key: &'s [u8],
    pub owner: &'s [u8],
}

/// Publishes how a wait has ended. Where a message could get inside a reply, it is postponed to the next event-loop iteration.
pub fn publish_end(server: &Server, channel: &Rc<[u8]>, event: Event, subject: Subject<'_>) {
    let message = message(event, subject);
    if server::may_publish() {
        publish(channel, &message);
    } else {
        state::with(server, |state| state.postponed.push_back((Rc::clone(channel), message)));
    }
}

/// Publishes at most `limit` postponed messages. Returns whether there are more.
pub fn publish_postponed(server: &Server, limit: usize) -> bool {
    for _ in 0..limit {
        let Some((channel, message)) = state::with(server, |state| state.postponed.pop_front()) else { return false };
        publish(&channel, &message);
    }
    state::with(server, |state| !state.postponed.is_empty())
}

/// Publishes a message. Returns the number of subscribers on this server.
pub fn publish(channel: &[u8], message: &[u8]) -> usize {
    debug_assert!(server::may_publish(), "the message could get inside a reply");
    server::publish(OwnedString::new(channel).as_ref(), OwnedString::new(message).as_ref())
}

/// Returns the message of an event.
pub fn message(event: Event, Subject { db, key, owner }: Subject<'_>) -> Vec<u8> {
    debug_assert!(!owner.contains(&b' '), "a token with a space makes the message ambiguous");
    let (name, lease_end) = match event {
        Event::Granted(lease_end) => (b"granted".as_slice(), lease_end),
        Event::TimedOut => (b"timeout".as_slice(), 0),
        Event::Withdrawn => (b"withdrawn".as_slice(), 0),
        Event::Replaced => (b"replaced".as_slice(), 0),
        Event::Aborted => (b"lost".as_slice(), 0),
    };
    format_integer(lease_end, |lease_end| format_integer(db.into(), |db| [name, lease_end, db, owner, key].join(&b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ends_with_key() {
        let subject = Subject { db: 3, key: b"my key\0", owner: b"token" };
        assert_eq!(message(Event::Granted(1_700_000_000_000), subject), b"granted 1700000000000 3 token my key\0");
        assert_eq!(message(Event::TimedOut, subject), b"timeout 0 3 token my key\0");
        assert_eq!(message(Event::Withdrawn, subject), b"withdrawn 0 3 token my key\0");
        assert_eq!(message(Event::Replaced, subject), b"replaced 0 3 token my key\0");
        assert_eq!(message(Event::Aborted, subject), b"lost 0 3 token my key\0");
    }
}
