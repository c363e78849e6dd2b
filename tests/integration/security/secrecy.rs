//! Who sees tokens, and the names of locks. Whoever knows the token of a lock, and may write to its key, can release it.

use support::listener::Listener;
use support::{Client, Flavour, Reply, Server, Setup, Waiter, now_ms};

use super::{USE, are_refused, user};

const TOKEN: &str = "a-secret-token";

/// A worker's life in which the token is in every kind of command, and in refused ones.
#[track_caller]
fn live(server: &Server) {
    let mut worker = user(server, "worker", &format!("~lock:* &news {USE} +lock.fence"));
    for (line, reply) in [
        (format!("LOCK.ACQUIRE lock:a {TOKEN} PX 60000 SESSION"), "1"),
        (format!("LOCK.REENTER lock:b {TOKEN} PX 60000"), "1"),
        (format!("LOCK.SHARE lock:c {TOKEN} PX 60000"), "1"),
        (format!("LOCK.ACQUIRE lock:c {TOKEN} PX 60000"), "OTHERFORM"),
        (format!("LOCK.RELEASE lock:b {TOKEN} HOLD 9"), "HOLDMISMATCH"),
        (format!("LOCK.ACQUIRE lock:d {TOKEN} PX 0"), "ERR"),
        (format!("LOCK.ACQUIRE door {TOKEN} PX 60000"), "NOPERM"),
        (format!("LOCK.INFO {TOKEN}"), "NOPERM"),
    ] {
        let came = worker.run(&line);
        let code = if came.is_error() { came.code().to_owned() } else { came.int().to_string() };
        assert_eq!(code, reply, "{line}");
        assert!(!came.is_error() || !format!("{came:?}").contains(TOKEN), "{came:?}");
    }
}

/// What a command answers, as one text.
fn text_of(client: &mut Client, line: &str) -> String {
    match client.run(line) {
        Reply::Text(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn the_value_of_the_key_has_the_token_and_so_have_the_commands_that_look_at_the_lock() {
    let server = Server::start();
    live(&server);
    let mut admin = server.client();
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE lock:b bobs-token PX 60000 BLOCK 0");
    admin.run(&format!("LOCK.ACQUIRE lock:e {TOKEN}"));
    for line in ["GET lock:e", "HGETALL lock:b", "ZRANGE lock:c 0 -1", "LOCK.INFO lock:b", "LOCK.INFO lock:e"] {
        assert!(shows(&mut admin, line, TOKEN), "{line}");
    }
    assert!(shows(&mut admin, "LOCK.WAITERS lock:b", "bobs-token"));
}

/// Whether a text is anywhere in a reply.
fn shows(client: &mut Client, line: &str, wanted: &str) -> bool {
    contains(&client.run(line), wanted)
}

fn contains(reply: &Reply, wanted: &str) -> bool {
    match reply {
        Reply::List(items) | Reply::Push(items) => items.iter().any(|item| contains(item, wanted)),
        Reply::Map(pairs) => pairs.iter().any(|(key, value)| contains(key, wanted) || contains(value, wanted)),
        Reply::Text(bytes) => String::from_utf8_lossy(bytes).contains(wanted),
        other => format!("{other:?}").contains(wanted),
    }
}

#[test]
fn who_may_use_locks_and_not_look_at_them_learns_no_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock:a {TOKEN} PX 60000")), 1);
    let mut mallory = user(&server, "mallory", &format!("~lock:* {USE} +lock.fence"));
    are_refused(&mut mallory, &["LOCK.INFO lock:a", "LOCK.WAITERS lock:a", "LOCK.QUEUES", "GET lock:a", "DEL lock:a"]);
    for line in [
        "LOCK.ACQUIRE lock:a m PX 1000",
        "LOCK.REENTER lock:a m PX 1000",
        "LOCK.SHARE lock:a m PX 1000",
        "LOCK.RELEASE lock:a m",
        "LOCK.EXTEND lock:a m PX 1",
        "LOCK.FENCE lock:a m lock:counter",
    ] {
        let reply = mallory.run(line);
        assert!(reply == Reply::Nil || reply.code() == "NOTOWNER", "{line}: {reply:?}");
        assert!(!contains(&reply, TOKEN));
    }
    assert_eq!(alice.run("GET lock:a"), TOKEN);
}

#[test]
fn the_category_of_all_commands_lets_a_user_look() {
    let server = Server::start();
    if !server.flavour().has_module_acl_categories() {
        return; // There the commands are named one by one.
    }
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock:a {TOKEN}")), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE lock:a bob BLOCK 0");
    let mut curious = user(&server, "curious", "~lock:a +@lock");
    assert_eq!(curious.run("LOCK.INFO lock:a").get("owner"), TOKEN);
    assert_eq!(curious.run(&format!("LOCK.RELEASE lock:a {TOKEN}")), 0);
    assert!(!curious.run("LOCK.QUEUES").is_error());
}

#[test]
fn monitor_and_the_logs_of_commands_show_tokens() {
    let server = Setup::new().config("slowlog-log-slower-than 0").start();
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    live(&server);
    let mut heard = String::new();
    while !heard.contains("LOCK.SHARE") {
        heard = format!("{:?}", monitor.receive());
    }
    assert!(heard.contains(TOKEN), "{heard}");
    assert!(shows(&mut server.client(), "SLOWLOG GET 100", TOKEN));
    if has_command_log(server.flavour()) {
        assert!(shows(&mut server.client(), "COMMANDLOG GET 100 slow", TOKEN));
    }
}

fn has_command_log(flavour: Flavour) -> bool {
    flavour.valkey && flavour.version >= (8, 1)
}

#[test]
fn what_shows_tokens_is_dangerous_and_what_a_user_without_that_may_call_does_not() {
    let server = Server::start();
    live(&server);
    let mut user = user(&server, "guest", "~nothing +@all -@dangerous");
    are_refused(
        &mut user,
        &["MONITOR", "SLOWLOG GET", "ACL LOG", "CONFIG GET *", "CLIENT LIST", "INFO lock", "KEYS *"],
    );
    if has_command_log(server.flavour()) {
        are_refused(&mut user, &["COMMANDLOG GET 10 slow"]);
    }
}

#[test]
fn nothing_else_shows_a_token() {
    let server = Setup::new().config("notify-keyspace-events KEA").start();
    let mut subscriber = server.client();
    subscriber.run("PSUBSCRIBE __key*");
    live(&server);
    let mut admin = server.client();
    assert_eq!(admin.run("ACL LOG").items().len(), 2, "two keys were refused");
    for line in ["ACL LOG", "CLIENT LIST", "INFO everything", "INFO lock", "LATENCY LATEST", "LOCK.QUEUES"] {
        assert!(!text_of(&mut admin, line).contains(TOKEN) || line == "ACL LOG", "{line}");
    }
    // The one refusal is about a key that has this name.
    let log = admin.run("ACL LOG");
    let shown: Vec<&Reply> = log.items().iter().filter(|entry| contains(entry, TOKEN)).collect();
    assert!(shown.iter().all(|entry| entry.get("object") == TOKEN), "{shown:?}");
    assert!(!server.log().contains(TOKEN), "{}", server.log());
    admin.run("PUBLISH __keyend end");
    loop {
        let message = subscriber.receive();
        assert!(!contains(&message, TOKEN), "{message:?}");
        if contains(&message, "__keyend") {
            break;
        }
    }
}

#[test]
fn files_and_replicas_have_the_tokens_of_those_who_hold() {
    let server = Setup::new().config("appendonly yes\naof-use-rdb-preamble no").start();
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {TOKEN} PX 60000")), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bobs-token PX 60000 BLOCK 0");
    let written = server.aof().commands().join("\n");
    assert!(written.contains(TOKEN), "{written}");
    assert!(!written.contains("bobs-token"), "who waits is written nowhere");
}

#[test]
fn queues_and_info_show_what_no_pattern_limits_but_no_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE payroll alice"), 1);
    let _bob = Waiter::start(&server, &format!("LOCK.ACQUIRE payroll {TOKEN} BLOCK 0"));
    let mut operator = user(&server, "operator", "+lock.queues +info");
    let queues = operator.run("LOCK.QUEUES");
    assert!(contains(&queues, "payroll") && !contains(&queues, TOKEN), "{queues:?}");
    let info = text_of(&mut operator, "INFO lock");
    assert!(info.contains("lock_waiters:1") && !info.contains("payroll"), "{info}");
}

#[test]
fn a_message_has_the_token_and_the_time_so_its_channel_is_as_secret_as_the_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut eavesdropper = Listener::start(&server, "news");
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {TOKEN} PX 60000 BLOCK 0 NOTIFY news")), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert!(eavesdropper.hears("granted", TOKEN, "door").lease_end > now_ms());
    assert_eq!(alice.run(&format!("LOCK.RELEASE door {TOKEN}")), 0, "which anybody can who may write to the key");
}
