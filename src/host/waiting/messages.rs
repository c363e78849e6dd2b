//! Messages to those who wait without blocking their connection.
//!
//! A message is `<event> <lease end> <db> <token> <key>`. It leaves with the replies of this round of the loop, and the
//! server says at once how many subscribers it goes to.

use std::rc::Rc;

use crate::core::{UnixMs, format_integer};
use crate::host::background::alarm;
use crate::host::state;
use crate::server::{self, OwnedString, StringRef};

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The lock is granted, with this end of its lease.
    Granted(UnixMs),
    /// The time is up.
    TimedOut,
    /// RELEASE has given the place up.
    Withdrawn,
    /// This server cannot go on with it.
    Aborted,
}

/// What a waiter waited for.
#[derive(Clone, Copy)]
pub struct Subject<'s> {
    pub db: i32,
    pub key: &'s [u8],
    pub owner: &'s [u8],
}

/// Tells the subscribers of a channel that the lock is granted. Returns whether there is one who gets the message.
pub fn publish_granted(channel: &[u8], lease_end: UnixMs, subject: Subject<'_>) -> bool {
    let message = message(Event::Granted(lease_end), subject);
    publish(channel, &message) > 0
}

/// Tells the subscribers of a channel how a wait has ended, if there are any: now, or where a message might land inside
/// a reply, in the next round of the loop.
pub fn publish_end(channel: &Rc<[u8]>, event: Event, subject: Subject<'_>) {
    let message = message(event, subject);
    if server::may_publish() {
        publish(channel, &message);
    } else {
        state::with(|state| state.postponed.push_back((Rc::clone(channel), message)));
        alarm::set();
    }
}

/// Returns the message that says that a wait is lost.
pub fn aborted_message(subject: Subject<'_>) -> Vec<u8> {
    message(Event::Aborted, subject)
}

/// Publishes what was postponed, up to `limit` messages. Returns whether there are more.
pub fn publish_postponed(limit: usize) -> bool {
    for _ in 0..limit {
        let Some((channel, message)) = state::with(|state| state.postponed.pop_front()) else { return false };
        publish(&channel, &message);
    }
    state::with(|state| !state.postponed.is_empty())
}

/// Returns whether anybody on this server listens on a channel.
pub fn has_subscriber(channel: StringRef<'_>) -> bool {
    server::has_subscriber(channel)
}

fn publish(channel: &[u8], message: &[u8]) -> usize {
    server::publish(OwnedString::new(channel).as_ref(), OwnedString::new(message).as_ref())
}

fn message(event: Event, Subject { db, key, owner }: Subject<'_>) -> Vec<u8> {
    let (name, lease_end) = match event {
        Event::Granted(lease_end) => (b"granted".as_slice(), lease_end),
        Event::TimedOut => (b"timeout".as_slice(), 0),
        Event::Withdrawn => (b"withdrawn".as_slice(), 0),
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
        assert_eq!(message(Event::Aborted, subject), b"lost 0 3 token my key\0");
    }
}
