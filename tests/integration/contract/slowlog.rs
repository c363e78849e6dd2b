//! LOCK.SLOWLOG: what it lists, and its settings.

use support::{Client, Protocol, Reply, Server, Setup, Waiter, Way, now_ms};

use super::slowlog_entry::{Entry, entries, logs_every_wait, tokens};

/// Alice holds the lock, and each of these tokens waits until its time is up.
#[track_caller]
fn waits_in_vain(server: &Server, key: &str, tokens: &[&str]) {
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE {key} alice")), 1);
    for token in tokens {
        assert_eq!(server.client().run(&format!("LOCK.ACQUIRE {key} {token} BLOCK 1")), Reply::Nil);
    }
    assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
}

#[test]
fn entry_has_all_fields() {
    let server = logs_every_wait();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SLOWLOG GET"), Reply::List(vec![]));
    let mut alice = server.client_in(3);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let began = now_ms();
    let mut bob = Way::Blocked.start_in(&server, 3, "LOCK.SHARE door bob BLOCK 0");
    let _carol = Way::Notified.start_in(&server, 3, "LOCK.ACQUIRE door carol BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    let [entry] = entries(&mut client, "").try_into().expect("one entry");
    assert!((began..=now_ms()).contains(&entry.ended_at), "{entry:?}");
    assert!((0..=entry.ended_at - began).contains(&entry.waited_ms), "{entry:?}");
    let expected = Entry {
        id: 0,
        db: 3,
        key: b"door".to_vec(),
        token: b"bob".to_vec(),
        kind: "shared".to_owned(),
        end: "granted".to_owned(),
        others: 1,
        ..entry
    };
    assert_eq!(entries(&mut client, ""), [expected]);
}

#[test]
fn count_limits_list_as_in_slowlog() {
    const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let server = logs_every_wait();
    let mut client = server.client();
    waits_in_vain(&server, "door", &NAMES);
    let newest_first: Vec<_> = NAMES.into_iter().rev().collect();
    for (count, shown) in [("", 10), ("0", 0), ("1", 1), ("3", 3), ("12", 12), ("1000", 12), ("-1", 12)] {
        assert_eq!(tokens(&mut client, count), newest_first[..shown], "{count}");
    }
    assert_eq!(client.run("lock.slowlog get 9223372036854775807").items().len(), 12);
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 12);
    let ids: Vec<i64> = entries(&mut client, "-1").into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, (0..12).rev().collect::<Vec<i64>>());
}

#[test]
fn reset_drops_entries_and_numbers_go_on() {
    let server = logs_every_wait();
    let mut client = server.client();
    waits_in_vain(&server, "door", &["a", "b"]);
    assert_eq!(client.run("LOCK.SLOWLOG RESET"), "OK");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
    assert_eq!(client.run("LOCK.SLOWLOG GET -1"), Reply::List(vec![]));
    waits_in_vain(&server, "door", &["c"]);
    let ids: Vec<i64> = entries(&mut client, "").into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [2]);
}

#[test]
fn lowered_max_len_drops_oldest() {
    let server = logs_every_wait();
    let mut client = server.client();
    client.ok("CONFIG SET lock.slowlog-max-len 3");
    waits_in_vain(&server, "door", &["a", "b", "c", "d"]);
    assert_eq!(tokens(&mut client, ""), ["d", "c", "b"]);
    client.ok("CONFIG SET lock.slowlog-max-len 2");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 2);
    client.ok("CONFIG SET lock.slowlog-max-len 3");
    assert_eq!(tokens(&mut client, ""), ["d", "c"]);
    client.ok("CONFIG SET lock.slowlog-max-len 0");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
    waits_in_vain(&server, "door", &["e"]);
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0, "the log is off");
    assert!(client.run("CONFIG SET lock.slowlog-max-len 10001").is_error());
    client.ok("CONFIG SET lock.slowlog-max-len 1");
    waits_in_vain(&server, "door", &["f", "g"]);
    assert_eq!(tokens(&mut client, ""), ["g"]);
}

#[test]
fn only_waits_of_slowlog_ms_are_logged() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let wait = |token: &str| {
        assert_eq!(server.client().run(&format!("LOCK.ACQUIRE door {token} BLOCK 100")), Reply::Nil);
    };
    client.ok("CONFIG SET lock.slowlog-ms 600000");
    wait("too-short");
    client.ok("CONFIG SET lock.slowlog-ms 100");
    wait("as-long");
    assert_eq!(tokens(&mut client, ""), ["as-long"]);
    client.ok("CONFIG SET lock.slowlog-ms 4611686018427387903");
    wait("too-short");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 1);
}

#[test]
fn request_that_does_not_wait_is_not_logged() {
    let server = logs_every_wait();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000 BLOCK 0"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE door bob"), Reply::Nil);
    assert_eq!(client.run("LOCK.ACQUIRE door bob PX 9 BLOCK 9 NOTIFY news").code(), "NOSUBSCRIBER");
    client.ok("CONFIG SET lock.max-waiters 0");
    assert_eq!(client.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
    client.ok("MULTI");
    for line in ["LOCK.ACQUIRE door bob BLOCK 0", "LOCK.RELEASE door alice"] {
        assert_eq!(client.run(line), "QUEUED");
    }
    assert_eq!(client.run("EXEC"), Reply::list([Reply::Nil, Reply::Int(0)]));
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
}

#[test]
fn wait_counts_from_its_own_request() {
    let server = logs_every_wait();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = server.client();
    assert_eq!(bob.run("LOCK.ACQUIRE door bob BLOCK 200"), Reply::Nil);
    let mut again = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let waited = client.run("LOCK.WAITERS door").items()[0].get("waited-ms").int();
    assert!(waited >= 200, "the place is the old one: {waited}");
    let began = now_ms();
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(again.reply(), 1);
    let waits: Vec<i64> = entries(&mut client, "").into_iter().map(|entry| entry.waited_ms).collect();
    assert!(waits[1] >= 200 && waits[0] <= waited - 200 + (now_ms() - began) + 1, "{waits:?}, {waited}");
}

#[test]
fn each_copy_of_a_request_is_logged() {
    let server = logs_every_wait();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let mut copies = Way::ALL.map(|way| way.start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"));
    let _carol = Waiter::start(&server, "LOCK.ACQUIRE door carol BLOCK 0");
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    for copy in &mut copies {
        assert_eq!(copy.reply(), 1);
    }
    let logged = entries(&mut client, "").into_iter().map(|entry| (entry.token, entry.end, entry.others));
    let one = (b"bob".to_vec(), "granted".to_owned(), 1);
    assert_eq!(logged.collect::<Vec<_>>(), [one.clone(), one.clone(), one], "carol waits on");
}

#[test]
fn long_keys_and_tokens_are_cut_as_in_slowlog() {
    let server = logs_every_wait();
    let mut client = server.client();
    client.ok("CONFIG SET slowlog-log-slower-than 0");
    for len in [128, 129, 1024] {
        let (key, token) = (format!("\0\r\n{}", "k".repeat(len - 3)), format!("{}\u{7f}", "t".repeat(len - 1)));
        assert_eq!(client.call(&["LOCK.ACQUIRE", &key, "alice"]), 1);
        assert_eq!(client.call(&["LOCK.ACQUIRE", &key, &token, "BLOCK", "1"]), Reply::Nil);
        client.ok("SLOWLOG RESET");
        client.call(&["LOCK.RELEASE", &key, &token]);
        let slowlog = client.run("SLOWLOG GET -1");
        let is_release = |entry: &&Reply| entry.items()[3].items()[0] == "LOCK.RELEASE";
        let of_server = slowlog.items().iter().find(is_release).expect("an entry of the server").items()[3].clone();
        let [entry] = entries(&mut client, "1").try_into().expect("one entry");
        let cut = [entry.key, entry.token].map(Reply::Text);
        assert_eq!(cut, [of_server.items()[1].clone(), of_server.items()[2].clone()], "{len}");
    }
}

#[test]
fn wrong_arguments_have_errors_of_slowlog() {
    let server = logs_every_wait();
    waits_in_vain(&server, "door", &["a"]);
    let mut client = server.client();
    for arguments in ["GET -2", "GET x", "GET 1x", "GET +1", "GET 01", "GET 9223372036854775808", "LEN 1", "RESET 1"] {
        let of_server = client.run(&format!("SLOWLOG {arguments}")).error().to_owned();
        let expected = of_server.replace("slowlog|", "lock.slowlog|");
        assert_eq!(client.run(&format!("LOCK.SLOWLOG {arguments}")).error(), expected, "{arguments}");
    }
    let arity = |name: &str| format!("ERR wrong number of arguments for '{name}' command");
    assert_eq!(client.run("LOCK.SLOWLOG").error(), arity("lock.slowlog"));
    assert_eq!(client.run("LOCK.SLOWLOG GET 1 2").error(), arity("lock.slowlog|get"));
    for word in ["HELP", "GETS", "secret"] {
        let error = client.run(&format!("LOCK.SLOWLOG {word}")).error().to_owned();
        assert_eq!(error, "ERR unknown subcommand, try GET, LEN or RESET", "it does not echo {word}");
    }
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 1, "nothing was dropped");
}

#[test]
fn reply_is_flat_in_every_context_and_protocol() {
    let server = logs_every_wait();
    waits_in_vain(&server, "door", &["a"]);
    let of = |protocol| server.client_speaking(protocol).run("LOCK.SLOWLOG GET");
    let expected = of(Protocol::Resp2);
    assert!(matches!(&expected.items()[0], Reply::List(fields) if fields.len() == 9), "{expected:?}");
    assert_eq!(of(Protocol::Resp3), expected);
    let mut client = server.client();
    client.ok("MULTI");
    for line in ["LOCK.SLOWLOG GET", "LOCK.SLOWLOG RESET", "LOCK.SLOWLOG LEN"] {
        assert_eq!(client.run(line), "QUEUED");
    }
    let replies = client.run("EXEC");
    assert_eq!(replies.items()[0], expected);
    assert_eq!(replies.items()[1], "OK");
    assert_eq!(replies.items()[2], 0);
    waits_in_vain(&server, "door", &["b"]);
    let in_script = client.call(&["EVAL", "return redis.call('LOCK.SLOWLOG', 'GET', -1)", "0"]);
    assert_eq!(in_script.items()[0].items()[5], "b");
    assert_eq!(client.call(&["EVAL_RO", "return redis.call('LOCK.SLOWLOG', 'LEN')", "0"]), 1);
}

#[test]
fn command_is_for_operators_alone() {
    let server = logs_every_wait();
    waits_in_vain(&server, "door", &["a"]);
    let mut admin = server.client();
    admin.ok("ACL SETUSER operator on nopass ~nothing +lock.slowlog");
    admin.ok("ACL SETUSER worker on nopass ~* +@all -@dangerous");
    let mut operator = server.client();
    operator.ok("AUTH operator x");
    assert_eq!(tokens(&mut operator, ""), ["a"], "whatever keys it may access");
    let mut worker = server.client();
    worker.ok("AUTH worker x");
    if !server.flavour().has_acl_categories_for_modules() {
        admin.ok("ACL SETUSER worker -lock.slowlog");
    }
    for arguments in ["GET", "LEN", "RESET"] {
        assert_eq!(worker.run(&format!("LOCK.SLOWLOG {arguments}")).code(), "NOPERM", "{arguments}");
    }
    assert_eq!(operator.run("LOCK.SLOWLOG LEN"), 1);
}

#[test]
fn flushed_and_swapped_keys_stay_in_log() {
    let server = logs_every_wait();
    let mut client = server.client();
    waits_in_vain(&server, "door", &["a"]);
    let before = entries(&mut client, "");
    for line in ["FLUSHALL", "SWAPDB 0 1", "DEBUG RELOAD", "CONFIG RESETSTAT", "SLOWLOG RESET"] {
        client.ok(line);
        assert_eq!(entries(&mut client, ""), before, "{line}");
    }
}

#[test]
fn replica_has_log_of_its_own() {
    let server = Setup::new().config("lock.slowlog-ms 0\nreplica-serve-stale-data no").start();
    let mut client = server.client();
    waits_in_vain(&server, "door", &["a"]);
    client.ok("REPLICAOF 127.0.0.1 1");
    assert_eq!(client.run("GET door").code(), "MASTERDOWN", "its data may be stale");
    assert_eq!(tokens(&mut client, ""), ["a"]);
    client.ok("LOCK.SLOWLOG RESET");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
}

#[test]
fn restarted_and_reloaded_module_has_empty_log() {
    let server = Setup::new().config("appendonly yes\nlock.slowlog-ms 0").start();
    let mut client = server.client();
    waits_in_vain(&server, "door", &["a"]);
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 1);
    unload(&mut client);
    client.ok(&format!("MODULE LOADEX {} CONFIG lock.slowlog-ms 0", support::module_under_test().display()));
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
    waits_in_vain(&server, "door", &["b"]);
    let ids: Vec<i64> = entries(&mut client, "").into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [0]);
    let written = server.aof().commands();
    assert!(written.iter().all(|line| !line.contains("SLOWLOG")), "{written:?}");
}

fn unload(client: &mut Client) {
    support::eventually("the module is unloaded", || client.run("MODULE UNLOAD lock") == "OK");
}
