//! What one client can have the server do in one go, while it serves nobody else.

use support::listener::Listener;
use support::{Client, Reply, Server, waiters_of};

use super::{USE, are_refused, user};

/// So many requests wait for the door, each for a message.
#[track_caller]
fn crowd(server: &Server, count: usize) -> (Client, Listener) {
    let mut alice = server.client();
    let listener = Listener::start(server, "news");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let lines: Vec<String> =
        (0..count).map(|number| format!("LOCK.ACQUIRE door {number} PX 60000 BLOCK 0 NOTIFY news")).collect();
    alice.send_together(&lines);
    (0..count).for_each(|_| assert_eq!(alice.receive(), Reply::waiting()));
    (alice, listener)
}

#[test]
fn who_may_read_a_key_lists_a_thousand_waiters_at_most_in_one_call() {
    const MOST: usize = 1000;
    let server = Server::start();
    let (mut alice, _listener) = crowd(&server, MOST + 50);
    let mut reader = user(&server, "reader", "%R~door +lock.waiters");
    for (count, listed) in [(MOST - 1, MOST - 1), (MOST, MOST), (MOST + 1, MOST), (100_000, MOST)] {
        let list = reader.run(&format!("LOCK.WAITERS door COUNT {count}"));
        let tokens: Vec<String> = list.items().iter().map(|waiter| waiter.get("token").string()).collect();
        let expected: Vec<String> = (0..listed).map(|number| number.to_string()).collect();
        assert_eq!(tokens, expected, "COUNT {count}");
    }
    assert_eq!(waiters_of(&mut alice, "door"), 1050, "LOCK.INFO counts all");
}

#[test]
fn who_looks_at_all_locks_needs_a_right_to_that() {
    let server = Server::start();
    let mut worker = user(&server, "worker", &format!("~* {USE} +lock.fence +lock.info +lock.waiters"));
    are_refused(&mut worker, &["LOCK.QUEUES", "INFO lock", "INFO everything"]);
    let mut guest = user(&server, "guest", "~* +@all -@dangerous -lock.queues");
    are_refused(&mut guest, &["LOCK.QUEUES", "INFO lock", "INFO everything"]);
    let mut operator = user(&server, "operator", "+lock.queues +info");
    assert_eq!(operator.run("LOCK.QUEUES"), Reply::list([]));
    let mut shows = |line: &str| operator.run(line).string().contains("lock_contended_locks");
    for line in ["INFO lock", "INFO modules", "INFO everything"] {
        assert!(shows(line), "{line}");
    }
    for line in ["INFO", "INFO all", "INFO stats"] {
        assert!(!shows(line), "{line} does not look at the locks");
    }
}
