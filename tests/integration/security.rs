//! What one client can take from others or learn of them, where a scenario (tests/scenarios/security) cannot say it: sizes of
//! memory, and logs in which no token may be.

use support::listener::Listener;
use support::{Client, Reply, Server, Setup, Waiter, bytes_of, eventually, info_lock};

/// The tokens of a holder, of a blocked waiter and of a waiter for a message.
const TOKENS: [&str; 3] = ["a-secret-token", "a-blocked-token", "a-notified-token"];

/// Returns whether a text is anywhere in a reply.
fn contains(reply: &Reply, wanted: &str) -> bool {
    match reply {
        Reply::List(items) | Reply::Push(items) => items.iter().any(|item| contains(item, wanted)),
        Reply::Map(pairs) => pairs.iter().any(|(key, value)| contains(key, wanted) || contains(value, wanted)),
        Reply::Text(bytes) => String::from_utf8_lossy(bytes).contains(wanted),
        other => format!("{other:?}").contains(wanted),
    }
}

#[track_caller]
fn has_no_token(reply: &Reply) {
    assert!(!TOKENS.iter().any(|token| contains(reply, token)), "{reply:?}");
}

#[test]
fn statistics_events_and_log_show_no_token() {
    let server = Setup::new().config("notify-keyspace-events KEA").start();
    let [mut admin, mut worker, mut subscriber] = [(); 3].map(|()| server.client());
    subscriber.run("PSUBSCRIBE __key*");
    admin.ok("ACL SETUSER worker on nopass ~lock:* &news +lock.acquire +lock.reenter +lock.release +lock.share");
    worker.ok("AUTH worker any");
    let [holder, blocked, notified] = TOKENS;
    let _listener = Listener::start(&server, "news");
    for (line, code) in [
        (format!("LOCK.ACQUIRE lock:a {holder} PX 60000 SESSION"), ""),
        (format!("LOCK.REENTER lock:b {holder} PX 60000"), ""),
        (format!("LOCK.SHARE lock:c {holder} PX 60000"), ""),
        (format!("LOCK.ACQUIRE lock:c {holder} PX 60000"), "OTHERFORM"),
        (format!("LOCK.RELEASE lock:b {holder} HOLD 9"), "HOLDMISMATCH"),
        (format!("LOCK.ACQUIRE door {holder} PX 60000"), "NOPERM"),
        (format!("LOCK.ACQUIRE lock:b {holder}-2 PX 60000 BLOCK 0 NOTIFY others"), "NOPERM"),
    ] {
        match worker.run(&line) {
            Reply::Error(text) => assert!(text.starts_with(&format!("{code} ")) && !text.contains(holder), "{text}"),
            reply => assert_eq!((&reply, code), (&Reply::Int(1), ""), "{line}"),
        }
    }
    let reply = worker.run(&format!("LOCK.ACQUIRE lock:b {notified} PX 60000 BLOCK 0 NOTIFY news"));
    assert_eq!(reply, Reply::waiting());
    let _blocked = Waiter::start(&server, &format!("LOCK.ACQUIRE lock:b {blocked} PX 60000 BLOCK 0"));

    for line in ["CLIENT LIST", "INFO everything", "INFO lock", "LATENCY LATEST", "LOCK.QUEUES", "ACL LOG"] {
        has_no_token(&admin.run(line));
    }
    assert!(!contains(&admin.run("INFO lock"), "lock:b"), "the name of a lock");
    has_no_token(&Reply::text(&server.log()));
    admin.run("PUBLISH __keyend end");
    let messages = std::iter::from_fn(|| Some(subscriber.receive()));
    let events: Vec<Reply> = messages.take_while(|message| !contains(message, "__keyend")).collect();
    events.iter().for_each(has_no_token);
    assert!(events.len() > 3, "{events:?}");
}

/// Returns the memory that the server uses, in bytes.
fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory").and_then(|bytes| bytes.parse().ok()).expect("a number")
}

#[test]
fn check_of_channel_right_leaves_no_memory() {
    const CHECKS: usize = 10_000;
    let server = Server::start();
    let (mut admin, mut worker) = (server.client(), server.client());
    // The second selector makes the module check each one with a user of its own.
    admin.ok("ACL SETUSER worker on nopass resetchannels ~door &news +lock.acquire +lock.release (~gate &other +get)");
    assert_eq!(admin.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    worker.ok("AUTH worker any");
    let _listener = Listener::start(&server, "news");
    let mut check = |count| {
        for channel in ["news", "private"] {
            let ask = format!("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY {channel}");
            let lines: Vec<String> = (0..count).map(|_| ask.clone()).collect();
            worker.send_together(&lines);
            assert!(lines.iter().all(|_| match worker.receive() {
                Reply::Error(text) => channel == "private" && text.starts_with("NOPERM"),
                reply => channel == "news" && reply == Reply::waiting(),
            }));
        }
    };
    check(500); // What is allocated once, and the ACL LOG, which has a limit.
    let before = used_memory(&mut admin);
    check(CHECKS);
    let growth = used_memory(&mut admin) - before;
    assert!(growth < 100_000, "{growth} bytes more after {CHECKS} checks of each kind");
}

#[test]
fn message_costs_token_and_blocked_client_kilobytes() {
    const WAITERS: i64 = 100;
    let server = Server::start();
    let (mut alice, mut asker) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let (_listener, token) = (Listener::start(&server, "news"), "t".repeat(1000));
    let before = used_memory(&mut alice);
    for number in 0..WAITERS {
        let line = format!("LOCK.ACQUIRE door {token}{number} PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(asker.run(&line), Reply::waiting());
    }
    let bytes = used_memory(&mut alice) - before;
    assert!((1000..2500).contains(&(bytes / WAITERS)), "{bytes} bytes");

    let mut clients: Vec<Client> = (0..WAITERS).map(|_| server.client()).collect();
    let before = used_memory(&mut alice);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&bytes_of(&format!("LOCK.ACQUIRE door b{number} BLOCK 0")));
    }
    eventually("all wait", || info_lock(&mut alice, "waiters") == 2 * WAITERS);
    let bytes = used_memory(&mut alice) - before;
    assert!((15_000..60_000).contains(&(bytes / WAITERS)), "{bytes} bytes");
}

#[test]
fn record_of_lock_copies_its_name_once() {
    const LOCKS: usize = 50;
    const LENGTH: usize = 100_000;
    let server = Server::start();
    let mut alice = server.client();
    let _listener = Listener::start(&server, "news");
    let name = |number: usize| format!("{number}{}", "x".repeat(LENGTH));
    // The buffers of the connection hold one or two names of the fifty.
    let mut rise = |line: &str| {
        let before = used_memory(&mut alice);
        for number in 0..LOCKS {
            let reply = alice.run(&line.replace("KEY", &name(number)));
            assert!(!reply.is_error(), "{reply:?}");
        }
        (used_memory(&mut alice) - before) / i64::try_from(LOCKS).expect("a small number")
    };
    let length = i64::try_from(LENGTH).expect("a length");
    // The session makes the record, and the waiters join it.
    for (what, line, names) in [
        ("a lock", "LOCK.ACQUIRE KEY alice PX 600000", 1),
        ("a session", "LOCK.ACQUIRE KEY alice PX 600000 SESSION", 1),
        ("a queue", "LOCK.ACQUIRE KEY bob PX 600000 BLOCK 0 NOTIFY news", 0),
        ("a second waiter", "LOCK.ACQUIRE KEY carol PX 600000 BLOCK 0 NOTIFY news", 0),
    ] {
        let bytes = rise(line);
        assert!((bytes - names * length).abs() < length / 3, "{what}: {bytes} bytes with names of {LENGTH}");
    }
}
