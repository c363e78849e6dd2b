//! The signal list of python-redis-lock, of which one waiter pops the signal.

use support::listener::Listener;
use support::{OBSERVATION, Reply, Setup, Waiter, eventually, never_within};

use super::start;

const WAIT: &str = "BLPOP lock-signal:door 0";

fn signal() -> Reply {
    Reply::list([Reply::text("lock-signal:door"), Reply::text("1")])
}

#[test]
fn every_way_in_which_a_lock_is_released_wakes_who_waits() {
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')";
    let (server, mut alice) = start();
    let ways: [&[&[&str]]; 4] = [
        &[&["LOCK.RELEASE", "lock:door", "alice"]],
        &[&["MULTI"], &["LOCK.RELEASE", "lock:door", "alice"], &["EXEC"]],
        &[&["EVAL", script, "1", "lock:door"]],
        &[&["LOCK.RELEASE", "lock:door", "alice", "HOLD", "1"]],
    ];
    for way in ways {
        assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
        let mut theirs = Waiter::start(&server, WAIT);
        for command in way {
            let reply = alice.call(command);
            assert!(!reply.is_error(), "{way:?}: {reply:?}");
        }
        assert_eq!(theirs.reply(), signal(), "{way:?}");
        assert_eq!(alice.run("EXISTS lock-signal:door lock:door"), 0, "{way:?}");
    }
}

#[test]
fn the_end_of_a_connection_that_owns_the_lock_wakes_who_waits() {
    let (server, mut control) = start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000 SESSION"), 1);
    let mut theirs = Waiter::start(&server, WAIT);
    drop(alice);
    assert_eq!(theirs.reply(), signal());
    assert_eq!(control.run("EXISTS lock-signal:door lock:door"), 0);
}

#[test]
fn in_a_pause_it_comes_when_that_is_over() {
    let (server, mut control) = start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000 SESSION"), 1);
    let mut theirs = Waiter::start(&server, WAIT);
    control.ok("CLIENT PAUSE 600000 WRITE");
    drop(alice);
    never_within(OBSERVATION, "a signal in a pause", || control.run("EXISTS lock-signal:door") == 1);
    control.ok("CLIENT UNPAUSE");
    assert_eq!(theirs.reply(), signal());
}

#[test]
fn a_signal_that_nobody_takes_is_one_and_goes_after_a_second() {
    let (_server, mut alice) = start();
    for _ in 0..3 {
        assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
        assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
        assert_eq!(alice.run("LLEN lock-signal:door"), 1);
        let left = alice.pttl("lock-signal:door");
        assert!((1..=1000).contains(&left), "{left}");
    }
    eventually("the signal goes", || alice.run("EXISTS lock-signal:door") == 0);
}

#[test]
fn whatever_is_in_the_place_of_the_signal_is_replaced_as_by_the_package() {
    let (_server, mut alice) = start();
    for data in
        ["SET lock-signal:door x", "HSET lock-signal:door a b", "SADD lock-signal:door a", "RPUSH lock-signal:door a b"]
    {
        alice.run("DEL lock-signal:door");
        assert!(!alice.run(data).is_error());
        assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice"), 1);
        assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
        assert_eq!(alice.run("LRANGE lock-signal:door 0 -1"), Reply::list([Reply::text("1")]), "{data}");
    }
}

#[test]
fn a_lock_that_is_handed_over_wakes_nobody_until_it_is_left_free() {
    let (server, mut alice) = start();
    assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
    let mut theirs = Waiter::start(&server, WAIT);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE lock:door bob PX 600000 BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
    assert_eq!(bob.reply(), 1);
    never_within(OBSERVATION, "a signal for a lock that is held", || !theirs.is_blocked());
    assert_eq!(alice.run("LOCK.RELEASE lock:door bob"), 0);
    assert_eq!(theirs.reply(), signal());
}

#[test]
fn what_leaves_no_lock_of_the_package_free_signals_nothing() {
    let (_server, mut alice) = start();
    for (take, key) in [
        ("LOCK.REENTER", "lock:door"),
        ("LOCK.SHARE", "lock:door"),
        ("LOCK.ACQUIRE", "door"),
        ("LOCK.ACQUIRE", "lock-signal:door"),
        ("LOCK.ACQUIRE", "Lock:door"),
    ] {
        assert_eq!(alice.run(&format!("{take} {key} alice")), 1);
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} bob")).code(), "NOTOWNER");
        assert_eq!(alice.run(&format!("LOCK.RELEASE {key} alice")), 0);
        assert_eq!(alice.run("DBSIZE"), 0, "{take} {key}");
    }
    assert_eq!(alice.run("LOCK.RELEASE lock:door alice").code(), "NOTHELD");
    assert_eq!(alice.run("DBSIZE"), 0);
}

#[test]
fn it_is_off_unless_it_is_set_and_can_be_set_at_any_time() {
    let server = Setup::new().start();
    let mut alice = server.client();
    for (set, signals) in [("no", 0), ("yes", 1), ("no", 0)] {
        let default = Reply::list([Reply::text("lock.wake-foreign"), Reply::text("no")]);
        assert!(signals == 0 || alice.run("CONFIG GET lock.wake-foreign") == default);
        alice.ok(&format!("CONFIG SET lock.wake-foreign {set}"));
        alice.run("DEL lock-signal:door");
        assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice"), 1);
        assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
        assert_eq!(alice.run("EXISTS lock-signal:door"), signals, "{set}");
    }
    assert!(alice.run("CONFIG SET lock.wake-foreign 2").is_error());
}

#[test]
fn names_of_any_bytes() {
    let (_server, mut alice) = start();
    for name in [b"".as_slice(), b" ", b"{", b"}{", b"\0\r\n\xff", b"lock:", "türe".as_bytes(), &[b'x'; 3000]] {
        let (key, list) = ([b"lock:", name].concat(), [b"lock-signal:", name].concat());
        assert_eq!(alice.call(&[b"LOCK.ACQUIRE", key.as_slice(), b"alice"]), 1);
        assert_eq!(alice.call(&[b"LOCK.RELEASE", key.as_slice(), b"alice"]), 0);
        assert_eq!(alice.call(&[b"LPOP", list.as_slice()]), "1", "{name:?}");
        assert_eq!(alice.run("DBSIZE"), 0, "{name:?}");
    }
}

#[test]
fn in_the_database_of_the_lock() {
    let (_server, mut alice) = start();
    alice.ok("SELECT 3");
    assert_eq!(alice.run("LOCK.ACQUIRE lock:door alice"), 1);
    assert_eq!(alice.run("LOCK.RELEASE lock:door alice"), 0);
    assert_eq!(alice.run("EXISTS lock-signal:door"), 1);
    alice.ok("SELECT 0");
    assert_eq!(alice.run("DBSIZE"), 0);
}

#[test]
fn the_end_of_a_lease_that_leaves_the_lock_to_nobody_in_line_wakes_who_waits() {
    let (server, mut bob) = start();
    let listener = Listener::start(&server, "news");
    assert_eq!(bob.run("LOCK.ACQUIRE lock:door alice PX 600000"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE lock:door bob PX 600000 BLOCK 0 NOTIFY news"), Reply::waiting());
    let mut theirs = Waiter::start(&server, WAIT);
    drop(listener);
    eventually("nobody listens", || bob.run("PUBSUB SHARDNUMSUB news").items()[1] == 0);
    assert_eq!(bob.run("PEXPIRE lock:door 30"), 1);
    assert_eq!(theirs.reply(), signal());
}
