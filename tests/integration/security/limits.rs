//! Connections, renewals and memory that one client can take from the others.

use support::listener::Listener;
use support::{Aof, Client, Reply, Server, Setup, Waiter, bytes_of, eventually, info_lock};

use super::{USE, user};

/// Starts a server on which alice holds the lock `door`.
#[track_caller]
fn start(config: &str) -> (Server, Client) {
    let server = Setup::new().config(config).start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    (server, alice)
}

#[test]
fn user_without_channel_needs_connection_per_wait() {
    let (server, mut alice) = start("lock.max-waiters 50\nmaxclients 12");
    let mut mallory = user(&server, "mallory", &format!("~* {USE}"));
    assert_eq!(mallory.run("LOCK.ACQUIRE door m PX 60000 BLOCK 0 NOTIFY news").code(), "NOPERM");
    let mut waiting = Vec::new();
    let connect = || Client::connect(server.port(), support::Protocol::Resp2);
    while let Some(client) = connect().filter(|client| client.id() > 0) {
        let line = format!("LOCK.ACQUIRE door m{} PX 60000 BLOCK 0", waiting.len());
        waiting.push(Waiter::send_on(&server, client, &bytes_of(&line)));
    }
    let count = i64::try_from(waiting.len()).expect("a small number");
    assert!(count > 0 && count < 12);
    eventually("all of them wait", || info_lock(&mut alice, "waiters") == count);
}

#[test]
fn session_is_renewed_after_third_of_lease() {
    const LEASE_MS: i64 = 600;
    const RENEWALS: usize = 6;
    let (server, mut alice) = start(Aof::CONFIG);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE cellar alice PX {LEASE_MS} SESSION")), 1);
    let ends = || -> Vec<i64> {
        let commands = server.aof().commands();
        let ends = commands.iter().filter_map(|line| line.strip_prefix("PEXPIREAT cellar "));
        ends.map(|end| end.parse().expect("a time")).collect()
    };
    eventually("it is renewed several times", || ends().len() > RENEWALS);
    let shortest = ends().windows(2).map(|pair| pair[1] - pair[0]).min().expect("intervals");
    // On a busy machine renewals may be late, but none is early.
    assert!((LEASE_MS / 3 - 10..LEASE_MS / 2).contains(&shortest), "{shortest} ms");
}

/// Returns the memory that the server uses, in bytes.
fn used_memory(client: &mut Client) -> i64 {
    client.info("memory", "used_memory").and_then(|bytes| bytes.parse().ok()).expect("a number")
}

/// Sends requests for `door` that wait for a message, each with a token of 1000 bytes. Returns the memory that they use.
#[track_caller]
fn wait_for_messages(server: &Server, count: i64) -> (Listener, i64) {
    let (mut observer, mut client) = (server.client(), server.client());
    let (listener, token) = (Listener::start(server, "news"), "t".repeat(1000));
    let before = used_memory(&mut observer);
    for number in 0..count {
        let line = format!("LOCK.ACQUIRE door {token}{number} PX 60000 BLOCK 0 NOTIFY news");
        assert_eq!(client.run(&line), Reply::waiting());
    }
    (listener, used_memory(&mut observer) - before)
}

/// Opens connections that request `door` and are blocked.
#[track_caller]
fn block(server: &Server, count: i64) -> (Vec<Client>, i64) {
    let mut observer = server.client();
    let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
    let before = used_memory(&mut observer);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&bytes_of(&format!("LOCK.ACQUIRE door b{number} BLOCK 0")));
    }
    eventually("all wait", || blocked(&mut observer) == count);
    let after = used_memory(&mut observer);
    (clients, after - before)
}

fn blocked(client: &mut Client) -> i64 {
    info_lock(client, "waiters") - info_lock(client, "waiters_notified")
}

#[test]
fn message_costs_token_and_blocked_client_kilobytes() {
    const WAITERS: i64 = 100;
    let (server, _alice) = start("");
    let (_listener, bytes) = wait_for_messages(&server, WAITERS);
    assert!((1000..2500).contains(&(bytes / WAITERS)), "{bytes} bytes");
    let (_clients, bytes) = block(&server, WAITERS);
    assert!((15_000..60_000).contains(&(bytes / WAITERS)), "{bytes} bytes");
}

#[test]
fn maxmemory_clients_counts_no_messages() {
    let (server, mut alice) = start("maxmemory-clients 2mb");
    let (_listener, bytes) = wait_for_messages(&server, 2000);
    assert!(bytes > 2 * 1024 * 1024, "{bytes} bytes");
    assert_eq!(alice.info("stats", "evicted_clients").as_deref(), Some("0"));
    // Connections of blocked clients are counted. The server closes them, which ends their waits.
    alice.ok("CLIENT NO-EVICT ON");
    let (_clients, _) = block(&server, 40);
    server.client().run("CONFIG SET maxmemory-clients 128kb");
    eventually("some are disconnected", || blocked(&mut alice) < 40);
}

#[test]
fn queue_and_session_copy_name_of_lock_once() {
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
    for (what, line, names) in [
        ("a lock", "LOCK.ACQUIRE KEY alice PX 600000", 1),
        ("a session", "LOCK.ACQUIRE KEY alice PX 600000 SESSION", 1),
        ("a queue", "LOCK.ACQUIRE KEY bob PX 600000 BLOCK 0 NOTIFY news", 1),
        ("a second waiter", "LOCK.ACQUIRE KEY carol PX 600000 BLOCK 0 NOTIFY news", 0),
    ] {
        let bytes = rise(line);
        assert!((bytes - names * length).abs() < length / 3, "{what}: {bytes} bytes with names of {LENGTH}");
    }
}
