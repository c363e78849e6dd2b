//! A subscriber that closes in the iteration of the event loop in which its grant is made, and a message for each of thousands of waiters.

use std::time::Instant;

use support::listener::Listener;
use support::parallel::for_each;
use support::process::Process;
use support::{Protocol, Reply, Server, Waiter, now_ms};

/// Longer than a busy machine delays a server in the middle of an iteration, in milliseconds.
const LEASE_MS: i64 = 1500;

/// Both arrive while the server is stopped, so it finds the release and the close in one iteration.
#[test]
fn subscriber_that_closes_may_have_heard() {
    for_each(&[Protocol::Resp2, Protocol::Resp3], |&protocol| {
        let server = Server::start();
        let (mut alice, mut bob) = (server.client(), server.client());
        let mut listener = server.client_speaking(protocol);
        listener.send(&["SSUBSCRIBE", "news"]);
        assert!(matches!(listener.receive(), Reply::List(_) | Reply::Push(_)));
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let asked = bob.run(&format!("LOCK.ACQUIRE door bob PX {LEASE_MS} BLOCK 0 NOTIFY news"));
        assert_eq!(asked, Reply::waiting());
        let mut carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");

        let process = Process::of(&server);
        process.stop();
        alice.send_together(&["PUBSUB SHARDNUMSUB news", "LOCK.RELEASE door alice", "GET door"]);
        drop(listener);
        let since = now_ms();
        process.resume();
        let replies = [(); 3].map(|()| alice.receive());
        let is_heard = replies[0].items()[1] != 0;
        assert_eq!(replies[2], if is_heard { "bob" } else { "carol" });
        assert_eq!(carol.reply(), 1);
        assert!(!is_heard || now_ms() - since >= LEASE_MS, "bob may have received the message");
    });
}

#[test]
fn thousands_of_waits_are_aborted_within_a_second() {
    const COUNT: usize = 10_000;
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let mut late = Vec::new();
    // Attempts at a fair measurement on a busy machine.
    for _ in 0..6 {
        let mut listener = Listener::start(&server, "news");
        alice.ok("SET door alice");
        let asks: Vec<String> =
            (0..COUNT).map(|token| format!("LOCK.ACQUIRE door {token} PX 60000 BLOCK 0 NOTIFY news")).collect();
        for some in asks.chunks(500) {
            bob.send_together(some);
            assert!(some.iter().all(|_| bob.receive() == Reply::waiting()));
        }
        alice.ok("REPLICAOF 127.0.0.1 1");
        let since = Instant::now();
        (0..COUNT).for_each(|_| assert_eq!(listener.message().event, "lost"));
        late.push(since.elapsed());
        alice.ok("REPLICAOF NO ONE");
        if late.last().is_some_and(|late| late.as_millis() < 1000) {
            return;
        }
    }
    panic!("lost after {late:?}");
}
