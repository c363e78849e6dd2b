//! LOCK.SLOWLOG: how it cuts long words, and when it is empty.

use support::{Client, Reply, Server, Setup, Way, eventually, info_lock, module_under_test};

#[track_caller]
fn time_out(client: &mut Client, token: &str) {
    client.run("LOCK.ACQUIRE door alice");
    assert_eq!(client.run(&format!("LOCK.ACQUIRE door {token} BLOCK 1")), Reply::Nil);
}

#[test]
fn long_keys_and_tokens_are_cut_as_in_slowlog() {
    let server = Setup::new().config("lock.slowlog-ms 0\nslowlog-log-slower-than 0").start();
    let mut client = server.client();
    for len in [128, 129, 1024] {
        let (key, token) = (format!("\0\r\n{}", "k".repeat(len - 3)), format!("{}\u{7f}", "t".repeat(len - 1)));
        assert_eq!(client.call(&["LOCK.ACQUIRE", &key, "alice"]), 1);
        assert_eq!(client.call(&["LOCK.ACQUIRE", &key, &token, "BLOCK", "1"]), Reply::Nil);
        client.ok("SLOWLOG RESET");
        client.call(&["LOCK.RELEASE", &key, &token]);
        let slowlog = client.run("SLOWLOG GET -1");
        let is_release = |entry: &&Reply| entry.items()[3].items()[0] == "LOCK.RELEASE";
        let of_server = slowlog.items().iter().find(is_release).expect("an entry of the server").items()[3].clone();
        let entries = client.run("LOCK.SLOWLOG GET 1");
        assert_eq!(entries.items()[0].items()[4..6], of_server.items()[1..3], "{len}");
    }
}

#[test]
fn reloaded_module_has_empty_log() {
    let server = Setup::new().config("appendonly yes\nlock.slowlog-ms 0").start();
    let mut client = server.client();
    time_out(&mut client, "a");
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 1);
    eventually("the module is unloaded", || client.run("MODULE UNLOAD lock") == "OK");
    client.ok(&format!("MODULE LOADEX {} CONFIG lock.slowlog-ms 0", module_under_test().display()));
    assert_eq!(client.run("LOCK.SLOWLOG LEN"), 0);
    time_out(&mut client, "b");
    let entries = client.run("LOCK.SLOWLOG GET");
    assert_eq!((entries.items().len(), entries.items()[0].items()[0].int()), (1, 0), "numbers begin again");
    let written = server.aof().commands();
    assert!(written.iter().all(|line| !line.contains("SLOWLOG")), "{written:?}");
}

#[test]
fn panic_logs_each_wait_once() {
    let server = Setup::new().config("lock.slowlog-ms 0").with_failpoints().allow_bugs().start();
    let mut admin = server.client();
    assert_eq!(admin.run("LOCK.ACQUIRE door alice"), 1);
    let mut waiting = Way::ALL.map(|way| way.start(&server, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0")));
    assert_eq!(admin.call(&["FAILPOINT", "lock.info", "0"]), 1);
    assert!(admin.run("LOCK.INFO door").is_error());
    for waiter in &mut waiting {
        assert!(waiter.reply().is_error());
    }
    let is_logged = |server: &Server| server.client().run("LOCK.SLOWLOG LEN") == 3;
    eventually("the entries are there", || is_logged(&server));
    let entries = admin.run("LOCK.SLOWLOG GET -1");
    let ends: Vec<_> =
        entries.items().iter().rev().map(|entry| (entry.items()[5].string(), entry.items()[7].string())).collect();
    let expected = [("Blocked", "disconnected"), ("Notified", "lost"), ("OnOneConnection", "lost")];
    assert_eq!(ends, expected.map(|(token, end)| (token.to_owned(), end.to_owned())));
    drop(waiting);
    eventually("all have left", || info_lock(&mut admin, "waiters") == 0);
    assert!(is_logged(&server));
}
