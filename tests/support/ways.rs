//! The ways in which a request can wait, so that one test of what becomes of a waiter covers them all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::listener::Message;
use super::{Client, PATIENCE, Protocol, Reply, Server, Waiter, bytes_of, now_ms};

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its client is blocked.
    Blocked,
    /// Its client goes on, and another connection listens for the message, with RESP2.
    Notified,
    /// Its client goes on, and the message comes on the same connection, with RESP3.
    OnOneConnection,
}

/// A request that waits, in some way. Dropping it hangs up.
pub enum Waiting {
    Blocked(Waiter),
    Notified(Box<Notified>),
}

/// A request that waits for a message.
pub struct Notified {
    asker: Client,
    /// `None` if the asker listens itself.
    listener: Option<Client>,
    observer: Client,
    token: String,
    key: String,
    channel: String,
    /// What it was answered, if it does not wait.
    answer: Option<Reply>,
}

/// What a waiter that waits for a message is told in the place of a lock that this server cannot go on with.
pub const LOST: &str = "LOST";

/// For requests that do not say how long they want the lock, which a request for a message has to.
const LEASE_MS: u32 = 600_000;

impl Way {
    pub const ALL: [Self; 3] = [Self::Blocked, Self::Notified, Self::OnOneConnection];

    /// Sends a request with BLOCK and returns when it waits.
    #[track_caller]
    pub fn start(self, server: &Server, line: &str) -> Waiting {
        let waiting = self.send(server, line);
        match &waiting {
            Waiting::Blocked(waiter) => waiter.wait_until_blocked(),
            Waiting::Notified(notified) => assert_eq!(notified.answer, None, "{line}"),
        }
        waiting
    }

    /// Sends the request and does not look whether it waits.
    #[track_caller]
    pub fn send(self, server: &Server, line: &str) -> Waiting {
        match self {
            Self::Blocked => Waiting::Blocked(Waiter::send(server, line)),
            Self::Notified => Waiting::ask(server.client(), Some(server.client()), server.client(), line),
            Self::OnOneConnection => Waiting::ask(server.client_speaking(Protocol::Resp3), None, server.client(), line),
        }
    }
}

/// A channel of its own for a request. In a cluster it is in the slot of the key, if that has a hash tag.
fn channel_for(key: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let tag = key.find('{').and_then(|from| key.get(from..)).unwrap_or_default();
    format!("news{}{tag}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Waiting {
    /// Asks on a connection that goes on, with a channel of the key's slot.
    #[track_caller]
    fn ask(asker: Client, listener: Option<Client>, observer: Client, line: &str) -> Self {
        let channel = channel_for(line.split(' ').nth(1).expect("a key"));
        Self::ask_on(&channel, asker, listener, observer, line)
    }

    /// The same with a channel of the caller's choice, by a client and with a listener of its own.
    #[track_caller]
    pub fn start_on(server: &Server, channel: &str, line: &str) -> Self {
        Self::ask_on(channel, server.client(), Some(server.client()), server.client(), line)
    }

    #[track_caller]
    fn ask_on(channel: &str, mut asker: Client, mut listener: Option<Client>, observer: Client, line: &str) -> Self {
        let ear = listener.as_mut().unwrap_or(&mut asker);
        ear.send(&["SSUBSCRIBE", channel]);
        let reply = ear.receive();
        let (Reply::List(parts) | Reply::Push(parts)) = &reply else { panic!("not subscribed: {reply:?}") };
        assert_eq!(parts[0], "ssubscribe");
        let words: Vec<&str> = line.split(' ').collect();
        let lease = if words.contains(&"PX") { String::new() } else { format!("PX {LEASE_MS}") };
        asker.send(&bytes_of(&format!("{line} {lease} NOTIFY {channel}")));
        let reply = asker.receive();
        let answer = (reply != Reply::waiting()).then_some(reply);
        let [key, token] = [words[1], words[2]].map(str::to_owned);
        let channel = channel.to_owned();
        Self::Notified(Box::new(Notified { asker, listener, observer, token, key, channel, answer }))
    }

    /// The connection that asked.
    pub fn id(&self) -> i64 {
        match self {
            Self::Blocked(waiter) => waiter.id(),
            Self::Notified(notified) => notified.asker.id(),
        }
    }

    /// Whether the request still waits, as the server sees it.
    #[track_caller]
    pub fn waits(&mut self) -> bool {
        match self {
            Self::Blocked(waiter) => waiter.is_blocked(),
            Self::Notified(notified) => notified.waits(),
        }
    }

    /// What it is told in the end: 1 when it is granted the lock, nil when its time is up or it was given up, and `LOST`
    /// when the server cannot go on.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.reply_within(PATIENCE)
    }

    #[track_caller]
    pub fn reply_within(&mut self, timeout: Duration) -> Reply {
        match self {
            Self::Blocked(waiter) => waiter.reply_within(timeout),
            Self::Notified(notified) => {
                let reply = notified.reply_within(timeout);
                assert!(!matches!(reply, Reply::Other(_)), "no message in {timeout:?}");
                reply
            }
        }
    }

    /// It is told nothing more.
    #[track_caller]
    pub fn has_heard_nothing_else(&mut self) {
        match self {
            Self::Blocked(waiter) => waiter.has_heard_nothing_else(),
            Self::Notified(notified) => notified.has_heard_nothing_else(),
        }
    }
}

impl Notified {
    fn ear(&mut self) -> &mut Client {
        self.listener.as_mut().unwrap_or(&mut self.asker)
    }

    #[track_caller]
    fn waits(&mut self) -> bool {
        let line = self.observer.run(&format!("LOCK.WAITERS {} COUNT 1000", self.key));
        let Reply::List(waiters) = line else { return false };
        waiters.iter().any(|waiter| waiter.get("channel") == self.channel.as_str())
    }

    #[track_caller]
    fn reply_within(&mut self, timeout: Duration) -> Reply {
        if let Some(answer) = self.answer.take() {
            return answer;
        }
        let reply = self.ear().receive_within(timeout);
        let (Reply::List(parts) | Reply::Push(parts)) = &reply else { return reply };
        assert_eq!(parts[1], self.channel.as_str());
        if parts[0] == "sunsubscribe" {
            return Reply::Error(format!("{LOST} the channel is gone"));
        }
        let message = Message::of(&reply).unwrap_or_else(|| panic!("no message of NOTIFY: {reply:?}"));
        assert_eq!((&message.token, &message.key), (&self.token, &self.key));
        match message.event.as_str() {
            "granted" => {
                assert!(message.lease_end > now_ms(), "a lease that has ended: {message:?}");
                Reply::Int(1)
            }
            "timeout" | "withdrawn" => Reply::Nil,
            "replaced" => Reply::Error("REPLACED a later request has taken its place".to_owned()),
            "lost" => Reply::Error(format!("{LOST} {}", message.key)),
            other => panic!("no event: {other}"),
        }
    }

    #[track_caller]
    fn has_heard_nothing_else(&mut self) {
        let ear = self.ear();
        ear.send(&["PING"]);
        let reply = ear.receive();
        let pong = Reply::List(vec![Reply::Text(b"pong".to_vec()), Reply::Text(Vec::new())]);
        assert!(reply == pong || reply == "PONG", "{reply:?}");
    }
}
