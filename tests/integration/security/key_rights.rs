//! Keys that a user may not read or write.

use support::{Server, Waiter, eventually, now_ms, waiters_of};

use super::{USE, are_refused, user};

/// Every command that names a lock, as one who is not its holder would send it.
const ALL: [&str; 10] = [
    "LOCK.ACQUIRE theirs mallory BLOCK 0",
    "LOCK.REENTER theirs mallory BLOCK 0",
    "LOCK.SHARE theirs mallory BLOCK 0",
    "LOCK.RELEASE theirs alice",
    "LOCK.EXTEND theirs alice PX 1",
    "LOCK.FENCE theirs alice mine:counter",
    "LOCK.FENCE mine mallory theirs",
    "LOCK.FENCE mine mallory counter",
    "LOCK.INFO theirs",
    "LOCK.WAITERS theirs",
];

#[test]
fn no_command_touches_a_key_outside_of_the_users_patterns() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE theirs alice PX 600000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE theirs bob PX 600000 BLOCK 0");
    let mut mallory = user(&server, "mallory", "~mine* +@all");
    assert_eq!(mallory.run("LOCK.ACQUIRE mine mallory"), 1);
    are_refused(&mut mallory, &ALL);
    assert_eq!(waiters_of(&mut alice, "theirs"), 1);
    assert_eq!(alice.run("EXISTS counter mine:counter"), 0);
    assert!(alice.pttl("theirs") > 500_000);
    assert_eq!(alice.run("LOCK.RELEASE theirs alice"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn who_may_only_read_a_key_may_look_and_do_nothing_with_the_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let mut reader = user(&server, "reader", "%R~door ~counter +@all");
    assert_eq!(reader.run("LOCK.INFO door").get("owner"), "alice");
    assert_eq!(reader.run("LOCK.WAITERS door").items()[0].get("token"), "bob");
    let lines = ["LOCK.RELEASE door alice", "LOCK.RELEASE door bob", "LOCK.EXTEND door alice PX 1", "DEL door"];
    are_refused(&mut reader, &lines);
    are_refused(&mut reader, &["LOCK.ACQUIRE door alice", "LOCK.REENTER door alice", "LOCK.SHARE door alice"]);
    are_refused(&mut reader, &["LOCK.FENCE door alice counter"]);
    assert_eq!(alice.run("GET door"), "alice");
}

#[test]
fn who_may_only_write_a_key_may_not_use_it_as_a_lock_but_free_it() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let mut writer = user(&server, "writer", "%W~door ~counter +@all");
    are_refused(&mut writer, &["LOCK.ACQUIRE door w", "LOCK.REENTER door w", "LOCK.SHARE door w"]);
    are_refused(
        &mut writer,
        &["LOCK.RELEASE door alice", "LOCK.EXTEND door alice PX 1", "LOCK.FENCE door alice counter"],
    );
    are_refused(&mut writer, &["LOCK.INFO door", "LOCK.WAITERS door"]);
    assert_eq!(writer.run("DEL door"), 1);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn a_counter_may_be_any_key_that_the_user_may_write_even_a_lock() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE lock:theirs 4711"), 1);
    let mut mallory = user(&server, "mallory", &format!("~lock:* ~fence:* {USE} +lock.fence"));
    assert_eq!(mallory.run("LOCK.ACQUIRE lock:mine mallory"), 1);
    assert!(mallory.run("LOCK.FENCE lock:mine mallory lock:theirs").int() > 4711);
    assert_eq!(alice.run("LOCK.EXTEND lock:theirs 4711 PX 9000").code(), "NOTOWNER");
    // Not so where the token is no number, as a random one is not.
    assert_eq!(alice.run("LOCK.ACQUIRE lock:others a-81f3"), 1);
    assert!(mallory.run("LOCK.FENCE lock:mine mallory lock:others").is_error());
    assert_eq!(alice.run("GET lock:others"), "a-81f3");
}

#[test]
fn who_releases_a_lock_wakes_others_whatever_its_rights_to_what_wakes_them() {
    let server = Server::start();
    server.client().ok("CONFIG SET lock.wake-foreign yes");
    let mut worker = user(&server, "worker", &format!("~lock:* {USE}"));
    let mut news = server.client();
    assert_eq!(news.run("SUBSCRIBE redisson_lock__channel:{lock:b}").items()[0], "subscribe");
    are_refused(&mut worker, &["LOCK.ACQUIRE lock-signal:a w-1", "LPUSH lock-signal:a 1", "PUBLISH news 0"]);
    server.client().ok("SET lock-signal:a precious");
    assert_eq!(worker.run("LOCK.ACQUIRE lock:a w-1 PX 30000"), 1);
    assert_eq!(worker.run("LOCK.RELEASE lock:a w-1"), 0);
    assert_eq!(server.client().run("LLEN lock-signal:a"), 1, "whatever it was");
    assert_eq!(worker.run("LOCK.REENTER lock:b w-1 PX 30000"), 1);
    assert_eq!(worker.run("LOCK.RELEASE lock:b w-1"), 0);
    assert_eq!(news.receive().items()[2], "0");
    assert_eq!(server.client().run("ACL LOG").items().len(), 3, "only what it has asked for itself");
}

#[test]
fn who_may_use_a_lock_may_keep_it_and_others_can_only_wait() {
    const LONGEST_MS: i64 = 1000;
    let server = Server::start();
    server.client().ok(&format!("CONFIG SET lock.max-lease-ms {LONGEST_MS}"));
    let mut worker = user(&server, "worker", &format!("~lock:* {USE}"));
    assert_eq!(worker.run("LOCK.ACQUIRE lock:a w-1").code(), "LEASELIMIT");
    assert_eq!(worker.run(&format!("LOCK.EXTEND lock:a w-1 PX {}", LONGEST_MS + 1)).code(), "LEASELIMIT");
    let begin = now_ms();
    assert_eq!(worker.run(&format!("LOCK.ACQUIRE lock:a w-1 PX {LONGEST_MS}")), 1);
    let wait = format!("LOCK.ACQUIRE lock:a w-2 PX {LONGEST_MS} BLOCK 0");
    let mut waiter = Waiter::start(&server, &wait);
    eventually("the lock is kept for longer than any lease is", || {
        assert_eq!(worker.run(&format!("LOCK.EXTEND lock:a w-1 PX {LONGEST_MS}")), LONGEST_MS);
        now_ms() > begin + LONGEST_MS + LONGEST_MS / 2
    });
    assert!(waiter.is_blocked());
    assert_eq!(waiter.reply(), 1, "when the holder extends it no more");
}
