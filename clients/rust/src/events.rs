//! Messages of the server: the end of a wait, the change of a watched key, and the end of a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::keeper::Notice;
use crate::registry::Registry;

/// Passes the messages of all connections to the tasks that wait for them.
pub(crate) struct Events {
    /// Whether the latest event for a token that waits, or a key that is observed, was a grant. Of any other event the reader knows
    /// only that something has changed, or that a message may have been lost with its connection.
    latest: Registry<Vec<u8>, watch::Sender<bool>>,
    keeper: UnboundedSender<Notice>,
    disconnections: AtomicU64,
}

impl Events {
    pub(crate) fn new(keeper: UnboundedSender<Notice>) -> Arc<Self> {
        Arc::new(Self { latest: Registry::default(), keeper, disconnections: 0.into() })
    }

    /// Returns a reader of the events for a token or a key from now on.
    pub(crate) fn read(&self, topic: &[u8]) -> Reader {
        let topic = self.latest.enter(topic.to_vec());
        Reader { latest: topic.subscribe(), _topic: topic }
    }

    /// Tells the keeper. Returns false if it has ended with its runtime.
    pub(crate) fn tell(&self, notice: Notice) -> bool {
        self.keeper.send(notice).is_ok()
    }

    /// Returns the number of connections that were lost.
    pub(crate) fn disconnections(&self) -> u64 {
        self.disconnections.load(Ordering::SeqCst)
    }

    /// Notes that the connection of a number is lost, and messages with it. It does so once for each number.
    pub(crate) fn disconnected(&self, number: u64) {
        if self.disconnections.compare_exchange(number, number + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.note_all();
        }
    }

    /// Passes on a message of the server to the task that waits for it.
    pub(crate) fn message(&self, text: &[u8]) {
        let (event, token) = read_message(text);
        self.note(token, event == b"granted");
    }

    fn note(&self, topic: &[u8], is_grant: bool) {
        if let Some(latest) = self.latest.values().get(topic).and_then(Weak::upgrade) {
            latest.send_replace(is_grant);
        }
    }

    /// Passes on that a key has changed.
    pub(crate) fn changed(&self, key: &[u8]) {
        self.tell(Notice::Reported(key.to_vec()));
        self.note(key, false);
    }

    pub(crate) fn note_all(&self) {
        for latest in self.latest.values().values().filter_map(Weak::upgrade) {
            latest.send_replace(false);
        }
        self.tell(Notice::All);
    }
}

/// Returns the event and the token of a message: `<event> <lease end> <db> <token> <key>`.
pub(crate) fn read_message(text: &[u8]) -> (&[u8], &[u8]) {
    let mut words = text.splitn(5, |byte| *byte == b' ');
    (words.next().unwrap_or_default(), words.nth(2).unwrap_or_default())
}

/// The events of one topic. A later event replaces one that was not read.
pub(crate) struct Reader {
    latest: watch::Receiver<bool>,
    // Keeps the sender.
    _topic: Arc<watch::Sender<bool>>,
}

impl Reader {
    /// Forgets an event that was not read. Of a grant, the reply to the next request tells.
    pub(crate) fn forget(&mut self) {
        self.latest.mark_unchanged();
    }

    /// Waits for the next event, and returns whether it is a grant.
    pub(crate) async fn next(&mut self) -> bool {
        // It fails only without the sender.
        self.latest.changed().await.is_ok() && *self.latest.borrow_and_update()
    }
}
