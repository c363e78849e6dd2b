//! A client that has sent a blocking command and waits for its answer.

use std::time::Duration;

use super::{Client, PATIENCE, Reply, Server, bytes_of, eventually, happens_within};

/// A client that waits. Dropping it hangs up.
pub struct Waiter {
    client: Client,
    watch: Watch,
}

/// Looks at one client from outside.
struct Watch {
    port: u16,
    id: i64,
}

impl Watch {
    /// The flags that CLIENT LIST shows for the client; None when it is gone.
    fn flags(&self) -> Option<String> {
        let mut observer = Client::connect(self.port, super::Protocol::Resp2)?;
        let list = observer.run(&format!("CLIENT LIST ID {}", self.id));
        let line = list.string();
        let flags = line.split(' ').find_map(|part| part.strip_prefix("flags="));
        flags.map(str::to_owned)
    }
}

impl Waiter {
    /// Sends `line` and returns when the server has blocked the client.
    #[track_caller]
    pub fn start(server: &Server, line: &str) -> Self {
        Self::start_on(server, server.client(), &bytes_of(line))
    }

    /// The same for a wait that may end before anybody has seen it.
    #[track_caller]
    pub fn send(server: &Server, line: &str) -> Self {
        Self::send_on(server, server.client(), &bytes_of(line))
    }

    /// The same as [`start`](Self::start) on a connection of the caller's choice.
    #[track_caller]
    pub fn start_on(server: &Server, client: Client, args: &[impl AsRef<[u8]>]) -> Self {
        let waiter = Self::send_on(server, client, args);
        waiter.wait_until_blocked();
        waiter
    }

    /// Sends the command and does not look whether the server blocks the client.
    #[track_caller]
    pub fn send_on(server: &Server, mut client: Client, args: &[impl AsRef<[u8]>]) -> Self {
        let watch = Watch { port: server.port(), id: client.id() };
        client.send(args);
        Self { client, watch }
    }

    pub fn id(&self) -> i64 {
        self.watch.id
    }

    pub fn is_blocked(&self) -> bool {
        self.watch.flags().is_some_and(|flags| flags.contains('b'))
    }

    #[track_caller]
    pub fn wait_until_blocked(&self) {
        eventually("the client is blocked", || self.is_blocked());
    }

    /// Whether the server blocks the client within a moment.
    pub fn becomes_blocked(&self) -> bool {
        happens_within(Duration::from_secs(2), || self.is_blocked())
    }

    /// The answer, which must come.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.reply_within(PATIENCE)
    }

    #[track_caller]
    pub fn reply_within(&mut self, timeout: Duration) -> Reply {
        let reply = self.client.receive_within(timeout);
        assert!(!matches!(reply, Reply::Other(_)), "the waiting client got no answer in {timeout:?}");
        reply
    }

    /// Nothing was sent that was not looked at.
    #[track_caller]
    pub fn has_heard_nothing_else(&mut self) {
        assert_eq!(self.client.run("PING"), "PONG");
    }

    /// The answer, and the connection for what comes next.
    #[track_caller]
    pub fn into_client(mut self) -> (Reply, Client) {
        (self.reply(), self.client)
    }
}
