//! Messages of the server: the end of a wait, the change of a watched lock, and the end of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::redis::{PushInfo, PushKind, Value};
use crate::registry::{Entry, Registry};

/// An event, as far as a reader has to know: it asks the server for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The lock has been granted to the token.
    Granted,
    /// Something has changed, or a message may have been lost with its connection.
    Unknown,
}

/// Passes the messages of all connections to the tasks that wait for them.
#[derive(Default)]
pub(crate) struct Events {
    /// The latest event for a token that waits, or a key that is watched.
    latest: Arc<Registry<watch::Sender<Event>>>,
    disconnections: AtomicU64,
}

impl Events {
    /// Returns a reader of the events for a token or a key from now on.
    pub(crate) fn read(&self, topic: &[u8]) -> Reader {
        let topic = self.latest.enter(topic, || watch::Sender::new(Event::Unknown));
        Reader { latest: topic.subscribe(), _topic: topic }
    }

    /// Returns the number of connections that were lost.
    pub(crate) fn disconnections(&self) -> u64 {
        self.disconnections.load(Ordering::SeqCst)
    }

    /// Notes that a connection is lost, and messages with it.
    pub(crate) fn disconnected(&self) {
        self.disconnections.fetch_add(1, Ordering::SeqCst);
        self.latest.for_each(|latest| note(latest, Event::Unknown));
    }

    /// Passes on a message of a connection.
    pub(crate) fn hear(&self, message: &PushInfo) {
        match (&message.kind, message.data.as_slice()) {
            (PushKind::SMessage, [_, Value::BulkString(text)]) => {
                // <event> <lease end> <db> <token> <key>
                let mut words = text.splitn(5, |byte| *byte == b' ');
                let event = if words.next() == Some(b"granted") { Event::Granted } else { Event::Unknown };
                self.latest.with(words.nth(2).unwrap_or_default(), |latest| note(latest, event));
            }
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                let keys =
                    keys.iter().filter_map(|key| if let Value::BulkString(key) = key { Some(key) } else { None });
                keys.for_each(|key| self.latest.with(key, |latest| note(latest, Event::Unknown)));
            }
            // All keys, and all waits on a channel.
            (PushKind::Invalidate | PushKind::SUnsubscribe, _) => {
                self.latest.for_each(|latest| note(latest, Event::Unknown));
            }
            _ => {}
        }
    }
}

fn note(latest: &watch::Sender<Event>, event: Event) {
    latest.send_modify(|latest| *latest = event);
}

/// The events of one topic. A later event replaces one that was not read.
pub(crate) struct Reader {
    latest: watch::Receiver<Event>,
    // Keeps the sender.
    _topic: Entry<watch::Sender<Event>>,
}

impl Reader {
    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Event {
        // It fails only without the sender.
        self.latest.changed().await.map_or(Event::Unknown, |()| *self.latest.borrow_and_update())
    }
}
