//! Who sees tokens, and the names of locks. Whoever knows the token of a lock, and may write to its key, can release it.

use std::fs;

use support::listener::Listener;
use support::replicas::{REPLICATION, in_step, in_time, master, replicated};
use support::{Aof, Client, Flavour, Reply, Server, Setup, Waiter, bytes_of, now_ms};

use super::{USE, are_refused, user};

/// The token of one who holds locks, of one who waits blocked, and of one who waits for a message.
const TOKEN: &str = "a-secret-token";
const BLOCKED: &str = "a-blocked-token";
const NOTIFIED: &str = "a-notified-token";
const TOKENS: [&str; 3] = [TOKEN, BLOCKED, NOTIFIED];

/// A worker's life in which its token is in every kind of command, and in refused ones; and two who wait for the lock `lock:b`.
/// The connections stay open as long as what is returned.
#[track_caller]
fn live(server: &Server) -> (Client, Listener, Waiter) {
    let new_worker = || user(server, "worker", &format!("~lock:* &news {USE} +lock.fence +ssubscribe"));
    let mut worker = new_worker();
    for (line, reply) in [
        (format!("LOCK.ACQUIRE lock:a {TOKEN} PX 60000 SESSION"), "1"),
        (format!("LOCK.REENTER lock:b {TOKEN} PX 60000"), "1"),
        (format!("LOCK.SHARE lock:c {TOKEN} PX 60000"), "1"),
        (format!("LOCK.ACQUIRE lock:c {TOKEN} PX 60000"), "OTHERFORM"),
        (format!("LOCK.RELEASE lock:b {TOKEN} HOLD 9"), "HOLDMISMATCH"),
        (format!("LOCK.ACQUIRE lock:d {TOKEN} PX 0"), "ERR"),
        (format!("LOCK.ACQUIRE door {TOKEN} PX 60000"), "NOPERM"),
        ("LOCK.INFO lock:a".to_owned(), "NOPERM"),
        (format!("LOCK.EXTEND {TOKEN} x PX 60000"), "NOPERM"),
        (format!("LOCK.ACQUIRE lock:b {TOKEN}-2 PX 60000 BLOCK 0 NOTIFY others"), "NOPERM"),
    ] {
        let came = worker.run(&line);
        let code = if came.is_error() { came.code().to_owned() } else { came.int().to_string() };
        assert_eq!(code, reply, "{line}");
        assert!(!came.is_error() || !format!("{came:?}").contains(TOKEN), "{came:?}");
    }
    let listener = Listener::on(new_worker(), "news");
    let notified = worker.run(&format!("LOCK.ACQUIRE lock:b {NOTIFIED} PX 60000 BLOCK 0 NOTIFY news"));
    assert_eq!(notified, Reply::waiting());
    let wait = format!("LOCK.ACQUIRE lock:b {BLOCKED} PX 60000 BLOCK 0");
    let blocked = Waiter::start_on(server, new_worker(), &bytes_of(&wait));
    (worker, listener, blocked)
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
    let _life = live(&server);
    let mut admin = server.client();
    for line in ["GET lock:a", "HGETALL lock:b", "ZRANGE lock:c 0 -1", "LOCK.INFO lock:a", "LOCK.INFO lock:b"] {
        assert!(shows(&mut admin, line, TOKEN), "{line}");
    }
    for token in [BLOCKED, NOTIFIED] {
        assert!(shows(&mut admin, "LOCK.WAITERS lock:b", token), "{token}");
    }
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
    let _waiter = Waiter::start(&server, &format!("LOCK.ACQUIRE lock:a {BLOCKED} PX 60000 BLOCK 0"));
    let mut mallory = user(&server, "mallory", &format!("~lock:* {USE} +lock.fence"));
    are_refused(
        &mut mallory,
        &["LOCK.INFO lock:a", "LOCK.WAITERS lock:a", "LOCK.QUEUES", "LOCK.SLOWLOG GET", "GET lock:a", "DEL lock:a"],
    );
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
        assert!(TOKENS.iter().all(|token| !contains(&reply, token)), "{line}: {reply:?}");
    }
    assert_eq!(alice.run("GET lock:a"), TOKEN);
}

#[test]
fn the_category_of_all_commands_lets_a_user_look() {
    let server = Server::start();
    let mut alice = server.client();
    if !server.flavour().has_module_acl_categories() {
        let unknown = alice.run("ACL SETUSER curious +@lock");
        assert!(unknown.is_error(), "here the commands are named one by one: {unknown:?}");
        return;
    }
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE lock:a {TOKEN}")), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE lock:a bob BLOCK 0");
    let mut curious = user(&server, "curious", "~lock:a +@lock");
    assert_eq!(curious.run("LOCK.INFO lock:a").get("owner"), TOKEN);
    assert_eq!(curious.run("LOCK.WAITERS lock:a").items()[0].get("token"), "bob");
    assert_eq!(curious.run("LOCK.QUEUES").items()[0].get("key"), "lock:a");
    assert_eq!(curious.run(&format!("LOCK.RELEASE lock:a {TOKEN}")), 0);
}

#[test]
fn monitor_and_the_logs_of_commands_show_tokens() {
    let server = Setup::new().config("slowlog-log-slower-than 0").start();
    let mut monitor = server.client();
    monitor.ok("MONITOR");
    let (_worker, _listener, mut blocked) = live(&server);
    let mut admin = server.client();
    admin.run("ECHO the-end");
    let mut heard = String::new();
    while !heard.contains("the-end") {
        heard += &format!("{:?}\n", monitor.receive());
    }
    assert!(TOKENS.iter().all(|token| heard.contains(token)), "{heard}");
    let logs: &[&str] = if has_command_log(server.flavour()) {
        &["SLOWLOG GET -1", "COMMANDLOG GET -1 slow"]
    } else {
        &["SLOWLOG GET -1"]
    };
    for log in logs {
        let shown = TOKENS.map(|token| shows(&mut admin, log, token));
        assert_eq!(shown, [true, false, true], "{log}: who is blocked is not in it yet");
    }
    for token in [TOKEN, NOTIFIED] {
        assert_eq!(admin.run(&format!("LOCK.RELEASE lock:b {token}")), 0);
    }
    assert_eq!(blocked.reply(), 1);
    for log in logs {
        assert_eq!(shows(&mut admin, log, BLOCKED), logs_blocked_requests(server.flavour()), "{log}");
    }
}

/// Whether the logs have a request that was blocked when its wait is over.
fn logs_blocked_requests(flavour: Flavour) -> bool {
    !flavour.is("redis 7.0")
}

fn has_command_log(flavour: Flavour) -> bool {
    flavour.is_valkey() && flavour.version >= (8, 1)
}

#[test]
fn what_shows_tokens_or_names_of_any_lock_is_dangerous() {
    let server = Server::start();
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
    let _life = live(&server);
    let mut admin = server.client();
    let clients = text_of(&mut admin, "CLIENT LIST");
    assert!(clients.contains("user=worker") && clients.contains("cmd=lock.acquire"), "{clients}");
    for line in ["CLIENT LIST", "INFO everything", "INFO lock", "LATENCY LATEST", "LOCK.QUEUES"] {
        let text = text_of(&mut admin, line);
        assert!(TOKENS.iter().all(|token| !text.contains(token)), "{line}: {text}");
    }
    // One refusal is about a key that has this name.
    let log = admin.run("ACL LOG");
    let mut refused: Vec<String> = log.items().iter().map(|entry| entry.get("object").string()).collect();
    refused.sort_unstable();
    assert_eq!(refused, [TOKEN, "door", "lock.info", "others"]);
    let shown: Vec<&Reply> =
        log.items().iter().filter(|entry| TOKENS.iter().any(|token| contains(entry, token))).collect();
    let [entry] = shown[..] else { panic!("one entry: {shown:?}") };
    assert_eq!(entry.get("object"), TOKEN);
    let written = server.log();
    assert!(TOKENS.iter().all(|token| !written.contains(token)), "{written}");
    admin.run("PUBLISH __keyend end");
    let mut heard = 0;
    loop {
        let message = subscriber.receive();
        assert!(TOKENS.iter().all(|token| !contains(&message, token)), "{message:?}");
        if contains(&message, "__keyend") {
            break;
        }
        heard += 1;
    }
    assert!(heard > 3, "{heard} key events");
}

#[test]
fn files_and_replicas_have_the_tokens_of_those_who_hold() {
    let master = master(Aof::CONFIG);
    let follow = format!("replicaof 127.0.0.1 {}", master.port());
    let replica = Setup::new().config(REPLICATION).config(Aof::CONFIG).config(&follow).start();
    in_step(&replica);
    let mut client = replica.client();
    in_time("what the replica has received is in its file", || {
        client.info("persistence", "aof_rewrite_in_progress").as_deref() == Some("0")
    });
    let _life = live(&master);
    let mut admin = master.client();
    replicated(&mut admin, "mark");
    admin.ok("SAVE");
    let dump = fs::read(master.directory().join("dump.rdb")).expect("the server's file");
    let dump = String::from_utf8_lossy(&dump).into_owned();
    let texts = [("AOF", written(&master)), ("AOF of the replica", written(&replica)), ("RDB", dump)];
    for (what, text) in texts {
        assert!(text.contains(TOKEN), "{what}: {text}");
        assert!(!text.contains(BLOCKED) && !text.contains(NOTIFIED), "{what}: who waits is written nowhere");
    }
    assert_eq!(client.run("GET lock:a"), TOKEN);
    assert_eq!(client.run("LOCK.WAITERS lock:b"), Reply::list([]));
}

/// What a server has written into its append-only file.
fn written(server: &Server) -> String {
    server.aof().commands().join("\n")
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
    assert!(info.contains("lock_waiters:1") && !info.contains("payroll") && !info.contains(TOKEN), "{info}");
}

#[test]
fn slowlog_shows_tokens_whatever_the_pattern() {
    let server = Setup::new().config("lock.slowlog-ms 0").start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE payroll alice"), 1);
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE payroll {TOKEN} BLOCK 1")), Reply::Nil);
    let mut operator = user(&server, "operator", "+lock.slowlog");
    let log = operator.run("LOCK.SLOWLOG GET");
    assert!(contains(&log, "payroll") && contains(&log, TOKEN) && !contains(&log, "alice"), "{log:?}");
    let mut worker = user(&server, "worker", &format!("~* {USE} +lock.fence +lock.info +lock.waiters"));
    are_refused(&mut worker, &["LOCK.SLOWLOG GET"]);
}

#[test]
fn a_message_has_the_token_and_the_time_so_its_channel_is_as_secret_as_the_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let listening = user(&server, "listening", "&news +ssubscribe");
    let mut eavesdropper = Listener::on(listening, "news");
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {TOKEN} PX 60000 BLOCK 0 NOTIFY news")), Reply::waiting());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    let message = eavesdropper.hears("granted", TOKEN, "door");
    assert!(message.lease_end > now_ms());
    let mut releasing = user(&server, "releasing", "~door +lock.release");
    assert_eq!(releasing.run(&format!("LOCK.RELEASE door {}", message.token)), 0);
}
