//! Which logs, files and messages have the tokens of locks. A client that knows the token and may write the key can release.

use std::fs;

use support::listener::Listener;
use support::replicas::{REPLICATION, in_step, in_time, master, replicated};
use support::{Aof, Client, Flavour, Reply, Server, Setup, Waiter, bytes_of};

use super::{USE, user};

/// The tokens of a holder, of a blocked waiter and of a waiter for a message.
const TOKEN: &str = "a-secret-token";
const BLOCKED: &str = "a-blocked-token";
const NOTIFIED: &str = "a-notified-token";
const TOKENS: [&str; 3] = [TOKEN, BLOCKED, NOTIFIED];

/// Sends every kind of command with a token, also commands that are refused, and two requests that wait for `lock:b`. The
/// connections are open as long as the returned values live.
#[track_caller]
fn use_tokens(server: &Server) -> (Client, Listener, Waiter) {
    let new_worker = || user(server, "worker", &format!("~lock:* &news {USE} +lock.fence +ssubscribe"));
    let mut worker = new_worker();
    for (line, code) in [
        (format!("LOCK.ACQUIRE lock:a {TOKEN} PX 60000 SESSION"), ""),
        (format!("LOCK.REENTER lock:b {TOKEN} PX 60000"), ""),
        (format!("LOCK.SHARE lock:c {TOKEN} PX 60000"), ""),
        (format!("LOCK.ACQUIRE lock:c {TOKEN} PX 60000"), "OTHERFORM"),
        (format!("LOCK.RELEASE lock:b {TOKEN} HOLD 9"), "HOLDMISMATCH"),
        (format!("LOCK.ACQUIRE lock:d {TOKEN} PX 0"), "ERR"),
        (format!("LOCK.ACQUIRE door {TOKEN} PX 60000"), "NOPERM"),
        ("LOCK.INFO lock:a".to_owned(), "NOPERM"),
        (format!("LOCK.EXTEND {TOKEN} x PX 60000"), "NOPERM"),
        (format!("LOCK.ACQUIRE lock:b {TOKEN}-2 PX 60000 BLOCK 0 NOTIFY others"), "NOPERM"),
    ] {
        match worker.run(&line) {
            Reply::Error(text) => assert!(text.starts_with(&format!("{code} ")) && !text.contains(TOKEN), "{text}"),
            reply => assert_eq!((&reply, code), (&Reply::Int(1), ""), "{line}"),
        }
    }
    let listener = Listener::on(new_worker(), "news");
    let notified = worker.run(&format!("LOCK.ACQUIRE lock:b {NOTIFIED} PX 60000 BLOCK 0 NOTIFY news"));
    assert_eq!(notified, Reply::waiting());
    let wait = format!("LOCK.ACQUIRE lock:b {BLOCKED} PX 60000 BLOCK 0");
    let blocked = Waiter::start_on(server, new_worker(), &bytes_of(&wait));
    (worker, listener, blocked)
}

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
fn monitor_and_command_logs_show_tokens() {
    let server = Setup::new().config("slowlog-log-slower-than 0").start();
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    let (_worker, _listener, mut blocked) = use_tokens(&server);
    let mut admin = server.client();
    admin.run("ECHO the-end");
    let mut heard = String::new();
    while !heard.contains("the-end") {
        heard += &format!("{:?}\n", monitor.receive());
    }
    assert!(TOKENS.iter().all(|token| heard.contains(token)), "{heard}");
    let flavour = server.flavour();
    let logs = ["SLOWLOG GET -1", "COMMANDLOG GET -1 slow"].into_iter().take(1 + usize::from(has_command_log(flavour)));
    for log in logs.clone() {
        let shown = TOKENS.map(|token| contains(&admin.run(log), token));
        assert_eq!(shown, [true, false, true], "{log}: the request of the blocked client is not in it yet");
    }
    for token in [TOKEN, NOTIFIED] {
        assert_eq!(admin.run(&format!("LOCK.RELEASE lock:b {token}")), 0);
    }
    assert_eq!(blocked.reply(), 1);
    // Redis 7.0 does not log a request that was blocked.
    for log in logs {
        assert_eq!(contains(&admin.run(log), BLOCKED), !flavour.is("redis 7.0"), "{log}");
    }
}

fn has_command_log(flavour: Flavour) -> bool {
    flavour.is_valkey() && flavour.version >= (8, 1)
}

#[test]
fn other_logs_and_events_show_no_token() {
    let server = Setup::new().config("notify-keyspace-events KEA").start();
    let mut subscriber = server.client();
    subscriber.run("PSUBSCRIBE __key*");
    let _connections = use_tokens(&server);
    let mut admin = server.client();
    let clients = admin.run("CLIENT LIST");
    assert!(contains(&clients, "user=worker") && contains(&clients, "cmd=lock.acquire"), "{clients:?}");
    for line in ["CLIENT LIST", "INFO everything", "INFO lock", "LATENCY LATEST", "LOCK.QUEUES"] {
        has_no_token(&admin.run(line));
    }
    let info = admin.run("INFO lock");
    assert!(contains(&info, "lock_waiters:2") && !contains(&info, "lock:b"), "no name of a lock: {info:?}");
    // A refused key has the token as its name.
    let log = admin.run("ACL LOG");
    let object = |entry: &Reply| entry.get("object").string();
    let mut refused: Vec<String> = log.items().iter().map(object).collect();
    refused.sort_unstable();
    assert_eq!(refused, [TOKEN, "door", "lock.info", "others"]);
    log.items().iter().filter(|entry| object(entry) != TOKEN).for_each(has_no_token);
    has_no_token(&Reply::text(&server.log()));
    admin.run("PUBLISH __keyend end");
    let messages = std::iter::from_fn(|| Some(subscriber.receive()));
    let events: Vec<Reply> = messages.take_while(|message| !contains(message, "__keyend")).collect();
    events.iter().for_each(has_no_token);
    assert!(events.len() > 3, "{events:?}");
}

#[test]
fn files_and_replicas_have_tokens_of_holders() {
    let master = master(Aof::CONFIG);
    let follow = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Setup::new().config(REPLICATION).config(Aof::CONFIG).config(&follow).start();
    in_step(&replica);
    let mut client = replica.client();
    in_time("the replica's file has what it received", || {
        client.info("persistence", "aof_rewrite_in_progress").as_deref() == Some("0")
    });
    let _connections = use_tokens(&master);
    let mut admin = master.client();
    replicated(&mut admin, "mark");
    admin.ok("SAVE");
    let dump = fs::read(master.directory().join("dump.rdb")).expect("the server's file");
    let dump = String::from_utf8_lossy(&dump).into_owned();
    let aof = |server: &Server| server.aof().commands().join("\n");
    for (what, text) in [("AOF", aof(&master)), ("AOF of the replica", aof(&replica)), ("RDB", dump)] {
        assert!(text.contains(TOKEN), "{what}: {text}");
        assert!(!text.contains(BLOCKED) && !text.contains(NOTIFIED), "{what} has the token of a waiter");
    }
    assert_eq!(client.run("GET lock:a"), TOKEN);
    assert_eq!(client.run("LOCK.WAITERS lock:b"), Reply::list([]));
}
