//! What an operator is to be told of: each of these makes one alert fire.

use support::listener::Listener;
use support::{Client, Server, Waiter};

use super::stage::MOST_WAITERS;

/// As many as wait by NOTIFY, on one connection.
const CROWD: usize = MOST_WAITERS - 60;
const SESSIONS: usize = 20;

/// A crowd that waits. Dropping it ends the waits.
pub struct Crowd {
    asker: Client,
    _listener: Listener,
}

impl Crowd {
    #[track_caller]
    pub fn gather(server: &Server) -> Self {
        assert_eq!(server.client().run("LOCK.ACQUIRE gate holder PX 600000"), 1);
        let listener = Listener::start(server, "crowd");
        let mut crowd = Self { asker: server.client(), _listener: listener };
        assert_eq!(crowd.ask(0..CROWD), 0, "there is room for all");
        crowd
    }

    /// Asks for the gate with these tokens; how many are refused.
    #[track_caller]
    fn ask(&mut self, tokens: std::ops::Range<usize>) -> usize {
        let words = |token| format!("LOCK.ACQUIRE gate {token} PX 600000 BLOCK 600000 NOTIFY crowd");
        let requests: Vec<Vec<String>> =
            tokens.clone().map(|token| words(token).split(' ').map(str::to_owned).collect()).collect();
        self.asker.send_all(requests.iter().map(Vec::as_slice));
        tokens.filter(|_| self.asker.receive().is_error()).count()
    }

    /// More come than may wait.
    #[track_caller]
    pub fn overflow(&mut self) {
        assert!(self.ask(CROWD..CROWD + MOST_WAITERS) > 0, "some are refused");
    }
}

/// Somebody who waits long enough for an alert, for a lock in another database whose name is no text.
#[track_caller]
pub fn wait_long(server: &Server) -> Waiter {
    let mut holder = server.client_in(3);
    assert_eq!(holder.call(&[b"LOCK.ACQUIRE".as_slice(), b"caf\xe9 1", b"holder", b"PX", b"600000"]), 1);
    let request = [b"LOCK.ACQUIRE".as_slice(), b"caf\xe9 1", b"waiter", b"PX", b"600000", b"BLOCK", b"0"];
    Waiter::start_on(server, server.client_in(3), &request)
}

/// What the metrics call that lock.
pub const LONG_WAITED_FOR: &str = "lock_queue_waiters db3 caf\\xe9\\x201";

/// Clients with sessions, to be dropped together.
#[track_caller]
pub fn open_sessions(server: &Server) -> Vec<Client> {
    let open = |number| {
        let mut client = server.client();
        assert_eq!(client.run(&format!("LOCK.ACQUIRE room{number} owner PX 5000 SESSION")), 1);
        client
    };
    (0..SESSIONS).map(open).collect()
}

/// Clients believe that they hold locks which are somebody else's, or nobody's.
#[track_caller]
pub fn lose_locks(server: &Server) {
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE safe holder PX 600000"), 1);
    for _ in 0..60 {
        assert_eq!(client.run("LOCK.EXTEND safe other PX 5000").code(), "NOTOWNER");
        assert_eq!(client.run("LOCK.EXTEND attic other PX 5000").code(), "NOTHELD");
    }
}

/// A recovery period that goes on.
#[track_caller]
pub fn recover(server: &Server) {
    server.client().ok("CONFIG SET lock.recovery-ms 600000");
}
