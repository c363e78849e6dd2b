//! Which key events each LOCK command raises, in each form of lock: each event once.
//!
//! The server raises none for the writes of a module, so the module raises them. Valkey may come to do so by itself
//! (valkey-io/valkey#4592), and each event would come twice then.

use support::{Server, Setup, Waiter, eventually};

use super::audience::subscriber;

/// More bytes than the server stores in the header of an object, which are written by another function.
const LONG: &str = "a-token-that-is-longer-than-what-fits-into-a-header";

/// Commands in their order, with the events of each. A lock is named by the first letter of its form.
const MUTEX: [(&str, &[&str]); 19] = [
    ("LOCK.ACQUIRE m a", &["set m"]),
    ("LOCK.ACQUIRE m a PX 30000", &[]),
    ("LOCK.RELEASE m a", &["del m"]),
    ("LOCK.ACQUIRE m a PX 30000", &["set m", "expire m"]),
    ("LOCK.ACQUIRE m a PX 20000", &[]),
    ("LOCK.ACQUIRE m a PX 60000", &["expire m"]),
    ("LOCK.ACQUIRE m a NX", &[]),
    ("LOCK.ACQUIRE m b PX 90000", &[]),
    ("LOCK.REENTER m b PX 90000", &[]),
    ("LOCK.SHARE m b PX 90000", &[]),
    ("LOCK.EXTEND m a PX 50000", &["expire m"]),
    ("LOCK.EXTEND m a PX 50000 ADD", &["expire m"]),
    ("LOCK.FENCE m a counter", &["set counter"]),
    ("LOCK.FENCE m a counter", &["set counter"]),
    ("LOCK.INFO m", &[]),
    ("LOCK.RELEASE m a HOLD 1", &["del m"]),
    ("LOCK.ACQUIRE m a PX 30000 SESSION", &["set m", "expire m"]),
    ("LOCK.RELEASE m a", &["del m"]),
    ("LOCK.RELEASE m a", &[]),
];

const REENTRANT: [(&str, &[&str]); 12] = [
    ("LOCK.REENTER r a", &["hset r"]),
    ("LOCK.RELEASE r a", &["del r"]),
    ("LOCK.REENTER r a PX 30000", &["hset r", "expire r"]),
    ("LOCK.REENTER r a HOLD 1", &[]),
    ("LOCK.REENTER r a HOLD 2 PX 60000", &["hset r", "expire r"]),
    ("LOCK.REENTER r b PX 90000", &[]),
    ("LOCK.EXTEND r a PX 50000", &["expire r"]),
    ("LOCK.FENCE r a counter", &["set counter"]),
    ("LOCK.RELEASE r a HOLD 2 PX 90000", &["hset r", "expire r"]),
    ("LOCK.RELEASE r a", &["del r"]),
    ("LOCK.REENTER r a PX 30000 SESSION", &["hset r", "expire r"]),
    ("LOCK.RELEASE r a", &["del r"]),
];

const SHARED: [(&str, &[&str]); 14] = [
    ("LOCK.SHARE s a PX 30000", &["zadd s", "expire s"]),
    ("LOCK.SHARE s a PX 20000", &[]),
    ("LOCK.SHARE s b PX 20000", &["zadd s"]),
    ("LOCK.SHARE s b PX 25000", &["zadd s"]),
    ("LOCK.SHARE s c LIMIT 2 PX 30000", &[]),
    ("LOCK.SHARE s c", &["zadd s", "persist s"]),
    ("LOCK.FENCE s c counter", &["set counter"]),
    ("LOCK.RELEASE s c", &["zrem s", "expire s"]),
    ("LOCK.EXTEND s a PX 90000", &["zadd s", "expire s"]),
    ("LOCK.RELEASE s a", &["zrem s", "expire s"]),
    ("LOCK.RELEASE s b", &["zrem s", "del s"]),
    ("LOCK.SHARE s a PX 30000 SESSION", &["zadd s", "expire s"]),
    ("LOCK.RELEASE s a", &["zrem s", "del s"]),
    ("LOCK.RELEASE s a", &[]),
];

/// How each form is taken, with the events of a grant.
const TAKE: [(&str, &str); 3] = [("LOCK.ACQUIRE", "set"), ("LOCK.REENTER", "hset"), ("LOCK.SHARE", "zadd")];

fn server() -> Server {
    Setup::new().config("notify-keyspace-events KEA").start()
}

#[track_caller]
fn raised(what: &str, heard: &[String], expected: &[&str]) {
    let mut once = heard.to_vec();
    once.dedup();
    let hint = if heard.len() > expected.len() && once == expected {
        ": the server raises them for a module's writes, too (valkey-io/valkey#4592), so the module must not"
    } else {
        ""
    };
    assert_eq!(heard, expected, "{what}{hint}");
}

#[track_caller]
fn each_raises(lines: &[(&str, &[&str])]) {
    let server = server();
    let (mut client, mut heard) = (server.client(), subscriber(&server));
    for (line, expected) in lines {
        client.run(line);
        raised(line, &heard(), expected);
    }
}

#[test]
fn mutex_commands_raise_each_event_once() {
    each_raises(&MUTEX);
}

#[test]
fn reentrant_commands_raise_each_event_once() {
    each_raises(&REENTRANT);
}

#[test]
fn shared_commands_raise_each_event_once() {
    each_raises(&SHARED);
}

#[test]
fn long_token_raises_each_event_once() {
    each_raises(&[
        (&format!("LOCK.ACQUIRE m {LONG} PX 30000"), &["set m", "expire m"]),
        (&format!("LOCK.EXTEND m {LONG} PX 50000"), &["expire m"]),
        (&format!("LOCK.RELEASE m {LONG}"), &["del m"]),
    ]);
}

#[test]
fn counter_with_expiry_raises_set_once() {
    each_raises(&[
        ("LOCK.ACQUIRE m a", &["set m"]),
        ("LOCK.FENCE m a counter", &["set counter"]),
        ("PEXPIRE counter 60000", &["expire counter"]),
        ("LOCK.FENCE m a counter", &["set counter"]),
    ]);
}

#[test]
fn hand_over_between_forms_raises_each_event_once() {
    let server = server();
    let (mut alice, mut heard) = (server.client(), subscriber(&server));
    for (held, _) in TAKE {
        for (wanted, event) in TAKE {
            let what = format!("from {held} to {wanted}");
            assert_eq!(alice.run(&format!("{held} door alice PX 60000")), 1);
            // With a limit, because bob would not wait otherwise.
            let limit = if wanted == "LOCK.SHARE" { "LIMIT 1" } else { "" };
            let mut bob = Waiter::start(&server, &format!("{wanted} door bob PX 60000 BLOCK 0 {limit}"));
            heard();
            assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
            assert_eq!(bob.reply(), 1, "{what}");
            // The grant overwrites a mutex and a re-entrant lock; the last share leaves first.
            let released: &[&str] = if held == "LOCK.SHARE" { &["zrem door", "del door"] } else { &[] };
            let granted = format!("{event} door");
            raised(&what, &heard(), &[released, &[&granted, "expire door"]].concat());
            assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
            heard();
        }
    }
}

#[test]
fn closed_session_raises_each_event_once() {
    let server = server();
    let (mut observer, mut heard) = (server.client(), subscriber(&server));
    for ((take, event), end) in TAKE.into_iter().zip([&["del door"][..], &["del door"], &["zrem door", "del door"]]) {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX 60000 SESSION")), 1);
        raised(take, &heard(), &[&format!("{event} door"), "expire door"]);
        drop(alice);
        eventually("the lock is free", || observer.run("EXISTS door") == 0);
        raised(&format!("end of the session of {take}"), &heard(), end);
    }
}
