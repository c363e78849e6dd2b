//! Waiters, sessions and memory as what one client can take from all others, and what limits it.

use support::listener::Listener;
use support::{Aof, Client, Reply, Server, Setup, Waiter, eventually, info_lock, now_ms};

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

/// Renewals are what the server writes by itself.
#[test]
fn a_session_costs_a_renewal_for_each_third_of_its_lease() {
    const LEASE_MS: i64 = 600;
    const RENEWALS: usize = 6;
    let (server, mut alice) = small(Aof::CONFIG);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE cellar alice PX {LEASE_MS} SESSION")), 1);
    let ends = || -> Vec<i64> {
        let renewals = server.aof().commands();
        let ends = renewals.iter().filter_map(|line| line.strip_prefix("PEXPIREAT cellar "));
        ends.map(|end| end.parse().expect("an end")).collect()
    };
    eventually("it is renewed again and again", || ends().len() > RENEWALS);
    let mut apart: Vec<i64> = ends().windows(2).map(|pair| pair[1] - pair[0]).collect();
    apart.sort_unstable();
    // On a busy machine they may come late, but none comes early.
    assert!((LEASE_MS / 3 - 10..LEASE_MS / 2).contains(&apart[0]), "{apart:?}");
}

#[test]
fn thousands_of_shares_with_sessions_have_longer_leases_than_were_asked_for() {
    const SHARES: usize = 2500;
    const LEASE_MS: i64 = 100;
    let server = Server::start();
    let (mut one, mut many) = (server.client(), server.client());
    let ask = |token: &str| format!("LOCK.SHARE attic {token} PX {LEASE_MS} SESSION");
    assert_eq!(one.run(&ask("one")), 1);
    let mut is_longer_than = |ms| match one.run("ZSCORE attic one") {
        Reply::Nil => false, // Until its session has it back.
        end => end.string().parse::<i64>().expect("an end") - now_ms() > ms,
    };
    assert!(!is_longer_than(LEASE_MS));
    let lines: Vec<String> = (0..SHARES).map(|number| ask(&number.to_string())).collect();
    many.send_together(&lines);
    (0..SHARES).for_each(|_| assert_eq!(many.receive(), 1));
    eventually("a millisecond for every five", || is_longer_than(4 * LEASE_MS));
}

#[test]
fn the_limits_are_for_all_databases_and_can_be_set_while_the_server_runs() {
    let (server, mut alice) = small("lock.max-waiters 0\nlock.max-sessions 1");
    let mut bob = server.client_in(3);
    assert_eq!(bob.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
    alice.ok("CONFIG SET lock.max-waiters 1");
    let _waiter = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
    assert_eq!(alice.run("LOCK.ACQUIRE cellar alice PX 60000 SESSION"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE cellar bob PX 60000 SESSION").code(), "SESSIONFULL");
    alice.ok("CONFIG SET lock.max-sessions 2");
    assert_eq!(bob.run("LOCK.ACQUIRE cellar bob PX 60000 SESSION"), 1);
}

#[test]
fn who_waits_already_and_who_has_a_session_is_not_concerned_by_new_limits() {
    const LONGEST_MS: i64 = 20;
    let (server, mut alice) = small("");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0 SESSION");
    assert_eq!(alice.run("LOCK.ACQUIRE cellar alice PX 60000 SESSION"), 1);
    for limit in ["max-waiters 0", "max-sessions 0"] {
        alice.ok(&format!("CONFIG SET lock.{limit}"));
    }
    alice.ok(&format!("CONFIG SET lock.max-block-ms {LONGEST_MS}"));
    assert_eq!(server.client().run("LOCK.ACQUIRE door carol PX 60000 BLOCK 0").code(), "QUEUEFULL");
    eventually("the wait is longer than a new one may be", || {
        info_lock(&mut alice, "longest_wait_ms") > 5 * LONGEST_MS
    });
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(info_lock(&mut alice, "sessions"), 2);
}

#[test]
fn a_server_that_is_out_of_memory_lets_nobody_wait_and_everybody_release() {
    let (server, mut alice) = small("");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(alice.run("LOCK.REENTER cellar alice PX 60000"), 1);
    assert_eq!(alice.run("LOCK.SHARE attic alice PX 60000"), 1);
    alice.ok("CONFIG SET maxmemory 1");
    for line in [
        "LOCK.ACQUIRE free c",
        "LOCK.REENTER free c",
        "LOCK.SHARE free c",
        "LOCK.FENCE cellar alice c",
        "LOCK.ACQUIRE door c BLOCK 0",
    ] {
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
    let _listeners = [&longest, &too_long].map(|channel| Listener::start(&server, channel));
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {longest} PX 9 BLOCK 0 NOTIFY {longest}")), Reply::waiting());
    let token = alice.run(&format!("LOCK.ACQUIRE door {too_long} PX 9"));
    assert_eq!(token.error(), "ERR a token must be 1 to 1024 bytes long");
    let channel = alice.run(&format!("LOCK.ACQUIRE door t PX 9 BLOCK 0 NOTIFY {too_long}"));
    assert_eq!(channel.error(), "ERR a channel must be 1 to 1024 bytes long");
}

#[test]
fn a_lock_that_is_waited_for_and_one_with_a_session_has_its_name_in_memory_once_more() {
    const LOCKS: usize = 50;
    const LENGTH: usize = 100_000;
    let server = Server::start();
    let mut alice = server.client();
    let _listener = Listener::start(&server, "news");
    let name = |number: usize| format!("{number}{}", "x".repeat(LENGTH));
    // Beside what is looked for, the buffers of the one connection hold a name or two, of fifty.
    let mut rise = |line: &str| {
        let before = used_memory(&mut alice);
        for number in 0..LOCKS {
            let reply = alice.run(&line.replace("KEY", &name(number)));
            assert!(!reply.is_error(), "{reply:?}");
        }
        (used_memory(&mut alice) - before) / i64::try_from(LOCKS).expect("a few")
    };
    let length = i64::try_from(LENGTH).expect("a length");
    for (what, line, names) in [
        ("a lock", "LOCK.ACQUIRE KEY alice PX 600000", 1),
        ("a session", "LOCK.ACQUIRE KEY alice PX 600000 SESSION", 1),
        ("a line", "LOCK.ACQUIRE KEY bob PX 600000 BLOCK 0 NOTIFY news", 1),
        ("a line of two", "LOCK.ACQUIRE KEY carol PX 600000 BLOCK 0 NOTIFY news", 0),
    ] {
        let bytes = rise(line);
        println!("{what}: {bytes} bytes with names of {LENGTH}");
        assert!((bytes - names * length).abs() < length / 3, "{what}: {bytes} bytes with names of {LENGTH}");
    }
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
