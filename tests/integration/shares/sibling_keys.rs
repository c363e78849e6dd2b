//! The keys that waiting clients are blocked on. Whenever a key becomes a Sorted Set or a List, the server visits all clients that
//! are blocked on it; so no client is blocked on the key of the lock, whatever its name is.

use support::{Client, Reply, Server, Waiter, one_node};

/// Names with and without braces and hash tags.
const NAMES: [&str; 8] = ["job", "{job}1", "job{1", "job}1", "}job{1", "{}job", "{job", ""];

/// The number of keys that clients are blocked on, which Redis 7.0 does not show.
fn blocking_keys(client: &mut Client) -> Option<u64> {
    client.info("clients", "total_blocking_keys").and_then(|value| value.parse().ok())
}

#[test]
fn waiters_are_not_blocked_on_the_key_of_the_lock() {
    for server in [Server::start(), one_node::start()] {
        let mut alice = server.client();
        if blocking_keys(&mut alice).is_none() {
            continue;
        }
        for name in NAMES {
            let mut theirs = Waiter::start_on(&server, server.client(), &["BLPOP", name, "0"]);
            assert_eq!(alice.call(&["LOCK.ACQUIRE", name, "alice", "PX", "600000"]), 1);
            assert_eq!(blocking_keys(&mut alice), Some(1), "{name}");
            let share = ["LOCK.SHARE", name, "bob", "PX", "600000", "BLOCK", "0"];
            let mut waiter = Waiter::start_on(&server, server.client(), &share);
            assert_eq!(blocking_keys(&mut alice), Some(2), "{name}");
            assert_eq!(alice.call(&["LOCK.RELEASE", name, "alice"]), 0);
            assert_eq!(waiter.reply(), 1, "{name}");
            assert_eq!(alice.call(&["LOCK.RELEASE", name, "bob"]), 0);
            assert_eq!(alice.call(&["LPUSH", name, "1"]), 1);
            assert_eq!(theirs.reply(), Reply::list([Reply::text(name), Reply::text("1")]), "{name}");
        }
    }
}
