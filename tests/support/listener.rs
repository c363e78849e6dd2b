//! A client that listens for the messages of NOTIFY.

use super::{Client, Reply, Server};

/// A connection that has subscribed to a shard channel.
pub struct Listener(Client);

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub event: String,
    pub lease_end: i64,
    pub db: i64,
    pub token: String,
    pub key: String,
}

impl Listener {
    /// Subscribes to a channel.
    #[track_caller]
    pub fn start(server: &Server, channel: &str) -> Self {
        Self::on(server.client(), channel)
    }

    /// The same on a connection of the caller's choice.
    #[track_caller]
    pub fn on(mut client: Client, channel: &str) -> Self {
        let Reply::List(reply) = client.run(&format!("SSUBSCRIBE {channel}")) else { panic!("not subscribed") };
        assert_eq!(reply[0], "ssubscribe");
        Self(client)
    }

    /// The next message, which has to come in time.
    #[track_caller]
    pub fn message(&mut self) -> Message {
        let reply = self.0.receive();
        Message::of(&reply).unwrap_or_else(|| panic!("no message of NOTIFY: {reply:?}"))
    }

    /// The next message is about this.
    #[track_caller]
    pub fn hears(&mut self, event: &str, token: &str, key: &str) -> Message {
        let message = self.message();
        let about = (message.event.as_str(), message.token.as_str(), message.key.as_str());
        assert_eq!(about, (event, token, key));
        message
    }

    /// Nothing has come that was not looked at.
    #[track_caller]
    pub fn has_heard_nothing_else(&mut self) {
        let reply = self.0.run("PING");
        assert_eq!(reply, Reply::List(vec![Reply::Text(b"pong".to_vec()), Reply::Text(Vec::new())]), "a message");
    }
}

impl Message {
    /// A reply of SSUBSCRIBE's, with RESP2 or RESP3.
    pub(super) fn of(reply: &Reply) -> Option<Self> {
        let (Reply::List(parts) | Reply::Push(parts)) = reply else { return None };
        let [kind, _, message] = parts.as_slice() else { return None };
        assert_eq!(*kind, "smessage");
        let text = message.string();
        let mut words = text.splitn(5, ' ').map(str::to_owned);
        Some(Self {
            event: words.next()?,
            lease_end: words.next()?.parse().ok()?,
            db: words.next()?.parse().ok()?,
            token: words.next()?,
            key: words.next()?,
        })
    }
}
