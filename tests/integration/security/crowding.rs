//! Waiters, sessions and memory as what one client can take from all others, and what limits it.

use support::listener::Listener;
use support::{Client, Reply, Server, Setup, Waiter, eventually, info_lock};

use super::{USE, are_refused, user};

/// A server with few places, and alice, who holds the door.
#[track_caller]
fn small(config: &str) -> (Server, Client) {
    let server = Setup::new().config(config).start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    (server, alice)
}

#[test]
fn one_connection_can_fill_the_line_for_all_until_it_closes() {
    let (server, mut alice) = small("lock.max-waiters 5");
    let _listener = Listener::start(&server, "news");
    let mut mallory = user(&server, "mallory", &format!("~* &news {USE}"));
    for number in 0..5 {
        let line = format!("LOCK.ACQUIRE door m{number} PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(mallory.run(&line), Reply::waiting());
    }
    assert_eq!(server.client().run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0").code(), "QUEUEFULL");
    assert_eq!(alice.run("LOCK.ACQUIRE cellar bob PX 60000 BLOCK 0"), 1, "who need not wait is served");
    drop(mallory);
    eventually("its places are away", || info_lock(&mut alice, "waiters") == 0);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn a_user_without_a_channel_waits_with_one_connection_for_each_request() {
    let (server, mut alice) = small("lock.max-waiters 50\nmaxclients 12");
    let mut mallory = user(&server, "mallory", &format!("~* {USE}"));
    are_refused(&mut mallory, &["LOCK.ACQUIRE door m PX 60000 BLOCK 0 NOTIFY news"]);
    let mut waiting = Vec::new();
    let connect = || Client::connect(server.port(), support::Protocol::Resp2);
    while let Some(client) = connect().filter(|client| client.id() > 0) {
        let line = format!("LOCK.ACQUIRE door m{} PX 60000 BLOCK 0", waiting.len());
        waiting.push(Waiter::send_on(&server, client, &support::bytes_of(&line)));
    }
    let most = i64::try_from(waiting.len()).expect("a few");
    assert!(most > 0 && most < 12);
    eventually("all of them wait", || info_lock(&mut alice, "waiters") == most);
}

#[test]
fn one_connection_can_fill_the_sessions_for_all_until_it_closes() {
    let (server, mut alice) = small("lock.max-sessions 5");
    let mut mallory = user(&server, "mallory", &format!("~m* {USE}"));
    for number in 0..5 {
        assert_eq!(mallory.run(&format!("LOCK.ACQUIRE m{number} m PX 60000 SESSION")), 1);
    }
    let mut bob = server.client();
    assert_eq!(bob.run("LOCK.ACQUIRE cellar bob PX 60000 SESSION").code(), "SESSIONFULL");
    assert_eq!(bob.run("LOCK.ACQUIRE cellar bob PX 60000"), 1, "who needs no session is served");
    drop(mallory);
    eventually("its sessions are over", || info_lock(&mut alice, "sessions") == 0);
    assert_eq!(bob.run("LOCK.ACQUIRE cellar bob PX 60000 SESSION"), 1);
}

#[test]
fn the_limits_are_for_all_databases_and_can_be_set_while_the_server_runs() {
    let (server, mut alice) = small("lock.max-waiters 0");
    let mut bob = server.client_in(3);
    assert_eq!(bob.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
    alice.ok("CONFIG SET lock.max-waiters 1");
    let _waiter = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
    alice.ok("CONFIG SET lock.max-block-ms 20");
    assert_eq!(info_lock(&mut alice, "waiters"), 1, "who waits already is not cut short");
}

#[test]
fn a_server_that_is_out_of_memory_lets_nobody_wait_and_everybody_release() {
    let (server, mut alice) = small("");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(alice.run("LOCK.REENTER cellar alice PX 60000"), 1);
    assert_eq!(alice.run("LOCK.SHARE attic alice PX 60000"), 1);
    alice.ok("CONFIG SET maxmemory 1");
    for line in ["LOCK.ACQUIRE free c BLOCK 0", "LOCK.REENTER free c", "LOCK.SHARE free c", "LOCK.FENCE cellar alice c"]
    {
        assert_eq!(alice.run(line).code(), "OOM", "{line}");
    }
    assert_eq!(alice.run("LOCK.EXTEND cellar alice PX 60000"), 60000);
    for line in ["LOCK.RELEASE door alice", "LOCK.RELEASE cellar alice", "LOCK.RELEASE attic alice"] {
        assert_eq!(alice.run(line), 0, "{line}");
    }
    assert_eq!(bob.reply(), 1, "who waits gets the lock");
}

/// What the server uses of memory, in bytes.
fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory").and_then(|bytes| bytes.parse().ok()).expect("a number")
}

#[test]
fn a_blocked_client_costs_tens_of_kilobytes_and_one_that_is_told_by_message_the_length_of_its_token() {
    const WAITERS: i64 = 100;
    let (server, mut alice) = small("");
    let _listener = Listener::start(&server, "news");
    let mut asking = server.client();
    let token = "t".repeat(1000);
    let before = used_memory(&mut alice);
    for number in 0..WAITERS {
        let line = format!("LOCK.ACQUIRE door {token}{number} PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(asking.run(&line), Reply::waiting());
    }
    let notified = (used_memory(&mut alice) - before) / WAITERS;
    assert!((1000..2500).contains(&notified), "{notified} bytes");
    let mut clients: Vec<Client> = (0..WAITERS).map(|_| server.client()).collect();
    let before = used_memory(&mut alice);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&support::bytes_of(&format!("LOCK.ACQUIRE door b{number} BLOCK 0")));
    }
    eventually("all wait", || info_lock(&mut alice, "waiters") == 2 * WAITERS);
    let blocked = (used_memory(&mut alice) - before) / WAITERS;
    assert!((15_000..60_000).contains(&blocked), "{blocked} bytes");
}

#[test]
fn a_token_and_a_channel_are_1024_bytes_at_most() {
    let (server, mut alice) = small("");
    let [longest, too_long] = [1024, 1025].map(|length| "x".repeat(length));
    let _listener = Listener::start(&server, &longest);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {longest} PX 9 BLOCK 0 NOTIFY {longest}")), Reply::waiting());
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {too_long} PX 9")).code(), "ERR");
    assert!(alice.run(&format!("LOCK.ACQUIRE door t PX 9 BLOCK 0 NOTIFY {too_long}")).is_error());
}

#[test]
fn the_limit_of_memory_of_clients_does_not_count_what_waits_for_a_message() {
    const WAITERS: i64 = 2000;
    let (server, mut alice) = small("maxmemory-clients 2mb");
    let _listener = Listener::start(&server, "news");
    let before = used_memory(&mut alice);
    let token = "t".repeat(1000);
    for number in 0..WAITERS {
        let line = format!("LOCK.ACQUIRE door {token}{number} PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(alice.run(&line), Reply::waiting());
    }
    let evicted = |client: &mut Client| client.info("stats", "evicted_clients").map_or(-1, |n| n.parse().unwrap_or(-1));
    let waits = used_memory(&mut alice) - before;
    assert!(waits > 2 * 1024 * 1024, "{waits} bytes");
    assert_eq!(evicted(&mut alice), 0);
    // Connections are counted: those of blocked clients are closed, and they wait no longer.
    alice.ok("CLIENT NO-EVICT ON");
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&support::bytes_of(&format!("LOCK.ACQUIRE door b{number} BLOCK 0")));
    }
    let mut blocked = || info_lock(&mut alice, "waiters") - info_lock(&mut alice, "waiters_notified");
    eventually("all wait", || blocked() == 40);
    server.client().run("CONFIG SET maxmemory-clients 128kb");
    eventually("some are disconnected", || blocked() < 40);
}

#[test]
fn no_more_than_a_thousand_requests_share_a_place() {
    const MOST: usize = 1000;
    let (server, mut alice) = small("");
    let mut listener = server.client();
    let mut asking = server.client();
    let ask = |number| format!("LOCK.ACQUIRE door bob PX 60000 BLOCK 0 NOTIFY news{number}");
    for number in 0..=MOST {
        listener.run(&format!("SSUBSCRIBE news{number}"));
    }
    for number in 0..MOST {
        assert_eq!(asking.run(&ask(number)), Reply::waiting());
    }
    assert_eq!(asking.run(&ask(MOST)).code(), "QUEUEFULL");
    assert_eq!(server.client().run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0").code(), "QUEUEFULL");
    assert_eq!(asking.run(&ask(0)), Reply::waiting(), "a repeat takes the place of the earlier request");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("GET door"), "bob");
    for _ in 0..MOST {
        assert!(format!("{:?}", listener.receive()).contains("granted"));
    }
}
