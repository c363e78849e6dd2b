//! Clients that wait for a message of NOTIFY instead of being blocked, so that a scenario reads the same in each way of waiting.

use crate::Reply;

use super::Way;

/// For requests without a lease, which a request with NOTIFY has to have.
const LEASE_MS: &str = "600000";

/// A request that waits for a message.
pub(super) struct Notified {
    channel: String,
    key: String,
    token: String,
}

impl Notified {
    /// Describes the request of a client, and adds to it what NOTIFY needs. In a cluster the channel is in the slot of the key, if
    /// that has a hash tag.
    pub fn new(client: &str, request: &mut Vec<Vec<u8>>) -> Self {
        let word = |number: usize| request.get(number).map(|word| text(word)).unwrap_or_default();
        let (key, token) = (word(1), word(2));
        let tag = key.find('{').and_then(|from| key.get(from..)).unwrap_or_default();
        let channel = format!("news-of-{client}{tag}");
        let has_lease =
            request.iter().any(|word| ["PX", "EX"].iter().any(|unit| word.eq_ignore_ascii_case(unit.as_bytes())));
        let lease = ["PX", LEASE_MS].into_iter().filter(|_| !has_lease);
        let added = lease.chain(["NOTIFY", &channel]).map(|word| word.as_bytes().to_vec());
        request.extend(added.collect::<Vec<_>>());
        Self { channel, key, token }
    }

    /// Returns the commands that the listener needs to send first. The last one subscribes.
    pub fn to_listen(&self, way: Way) -> Vec<Vec<Vec<u8>>> {
        let hello = (way == Way::Pushed).then_some("HELLO 3");
        let subscribe = format!("SSUBSCRIBE {}", self.channel);
        hello.into_iter().chain([subscribe.as_str()]).map(words).collect()
    }

    /// Returns the reply that a blocked client would receive instead of this message: 1, nil, or an error with the
    /// code REPLACED or LOST. `None` if it is no message about this request.
    pub fn outcome(&self, message: &Reply, now_ms: i64) -> Option<Reply> {
        if *message == Reply::Closed {
            return Some(Reply::Closed);
        }
        let (Reply::List(parts) | Reply::Push(parts)) = message else { return None };
        let [kind, channel, message] = parts.as_slice() else { return None };
        if *channel != self.channel.as_str() {
            return None;
        }
        if *kind == "sunsubscribe" {
            return Some(Reply::Error("LOST the subscription has ended".to_owned()));
        }
        let message = message.string();
        let [event, end, _db, token, key] = message.splitn(5, ' ').collect::<Vec<_>>().try_into().ok()?;
        let end: i64 = end.parse().ok()?;
        match event {
            _ if (token, key) != (self.token.as_str(), self.key.as_str()) => None,
            "granted" if end > now_ms => Some(Reply::Int(1)),
            "timeout" | "withdrawn" if end == 0 => Some(Reply::Nil),
            "replaced" if end == 0 => Some(Reply::Error("REPLACED a later request has taken its place".to_owned())),
            "lost" if end == 0 => Some(Reply::Error("LOST this server cannot continue the wait".to_owned())),
            _ => None,
        }
    }
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// The words of a command without quotes.
pub(super) fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
