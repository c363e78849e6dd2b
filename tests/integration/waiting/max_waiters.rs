//! MAXWAITERS: a request that waits only in a short line.

use std::time::Duration;

use support::listener::Listener;
use support::{Client, OBSERVATION, Reply, Server, Waiter, eventually, info_lock, never_within, waiters_of};

const FULL: &str = "QUEUEFULL As many requests wait for this lock as MAXWAITERS allows";

/// A server where `holder` has the mutex `door`, and this number of requests wait for it.
#[track_caller]
fn held_with_waiters(count: usize) -> (Server, Client, Vec<Waiter>) {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let waiters = (0..count).map(|number| Waiter::start(&server, &format!("LOCK.ACQUIRE door w{number} BLOCK 0")));
    let waiters = waiters.collect();
    (server, control, waiters)
}

#[test]
fn request_waits_only_if_fewer_wait() {
    let (server, mut control, waiters) = held_with_waiters(2);
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"] {
        let refused = Reply::Error(FULL.to_owned());
        assert_eq!(control.run(&format!("{take} door alice BLOCK 0 MAXWAITERS 2")), refused, "{take}");
        assert_eq!(control.run(&format!("{take} door alice BLOCK 0 MAXWAITERS 1")), refused, "{take}");
        let alice = Waiter::start(&server, &format!("{take} door alice BLOCK 0 MAXWAITERS 3"));
        assert_eq!(waiters_of(&mut control, "door"), 3, "{take}");
        assert_eq!(control.run("LOCK.RELEASE door alice"), Reply::Nil);
        drop(alice);
    }
    drop(waiters);
    assert_eq!(control.info("errorstats", "errorstat_QUEUEFULL").as_deref(), Some("count=6"));
    assert!(!server.log().contains("QUEUEFULL"), "it is what the client asked for");
}

#[test]
fn lock_that_can_be_had_is_taken() {
    let (_server, mut control, waiters) = held_with_waiters(2);
    assert_eq!(control.run("LOCK.ACQUIRE door holder BLOCK 0 MAXWAITERS 1"), 1, "it holds the lock");
    assert_eq!(control.run("LOCK.ACQUIRE other alice BLOCK 0 MAXWAITERS 1"), 1, "it is free");
    drop(waiters);
}

#[test]
fn present_and_kept_places_are_not_refused() {
    let (server, mut control, mut waiters) = held_with_waiters(3);
    let line = "LOCK.ACQUIRE door w0 BLOCK 0 MAXWAITERS 1";
    let copy = Waiter::start(&server, line);
    assert_eq!(waiters_of(&mut control, "door"), 4, "copies count");
    drop(copy);
    drop(waiters.remove(0));
    eventually("w0 has left", || waiters_of(&mut control, "door") == 2);
    let mut again = Waiter::start(&server, line);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(again.reply(), 1, "it has its place again");
    // After the place was given up, it is as anybody else.
    assert_eq!(control.run("LOCK.RELEASE door w0"), 0);
    assert_eq!(control.run(line), Reply::Error(FULL.to_owned()));
}

#[test]
fn request_that_does_not_wait_gets_nil() {
    let (_server, mut control, waiters) = held_with_waiters(1);
    control.ok("MULTI");
    assert_eq!(control.run("LOCK.ACQUIRE door alice BLOCK 0 MAXWAITERS 1"), "QUEUED");
    assert_eq!(control.run("EXEC").items()[0], Reply::Nil);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 'BLOCK', '0', 'MAXWAITERS', '1')";
    assert_eq!(control.call(&["EVAL", script, "1", "door"]), Reply::Nil);
    drop(waiters);
}

#[test]
fn wait_for_a_message_is_bounded_too() {
    let (server, mut control, mut waiters) = held_with_waiters(1);
    let mut listener = Listener::start(&server, "news");
    let line = "LOCK.ACQUIRE door alice PX 60000 BLOCK 0 NOTIFY news MAXWAITERS";
    assert_eq!(control.run(&format!("{line} 1")), Reply::Error(FULL.to_owned()));
    assert_eq!(control.run(&format!("{line} 2")), Reply::waiting());
    assert_eq!(control.run(&format!("{line} 1")), Reply::waiting(), "it replaces the earlier one");
    assert_eq!(waiters_of(&mut control, "door"), 2);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(waiters[0].reply(), 1);
    assert_eq!(control.run("LOCK.RELEASE door w0"), 0);
    listener.hears("granted", "alice", "door");
    listener.has_heard_nothing_else();
}

#[test]
fn bad_numbers_are_refused() {
    let (server, mut control, waiters) = held_with_waiters(0);
    for (options, text) in [
        ("MAXWAITERS 1", "ERR MAXWAITERS needs BLOCK"),
        ("BLOCK 0 MAXWAITERS 0", "ERR value is out of range, must be positive"),
        ("BLOCK 0 MAXWAITERS -1", "ERR value is out of range, must be positive"),
        ("BLOCK 0 MAXWAITERS 2147483648", "ERR value is not an integer or out of range"),
        ("BLOCK 0 MAXWAITERS many", "ERR value is not an integer or out of range"),
        ("BLOCK 0 MAXWAITERS", "ERR syntax error"),
        ("BLOCK 0 MAXWAITERS 1 MAXWAITERS 1", "ERR syntax error"),
    ] {
        assert_eq!(control.run(&format!("LOCK.ACQUIRE door alice {options}")), Reply::Error(text.to_owned()));
    }
    let largest = Waiter::start(&server, "LOCK.ACQUIRE door alice BLOCK 0 MAXWAITERS 2147483647");
    assert_eq!(info_lock(&mut control, "waiters"), 1);
    drop((largest, waiters));
}

/// Very many come at the same time, and no more than allowed wait.
#[test]
fn line_stays_short_under_load() {
    const MOST: i64 = 5;
    let (server, mut control, waiters) = held_with_waiters(0);
    let rush: Vec<Waiter> = (0..60)
        .map(|number| Waiter::send(&server, &format!("LOCK.ACQUIRE door r{number} BLOCK 0 PX 60000 MAXWAITERS {MOST}")))
        .collect();
    eventually("the line is full", || waiters_of(&mut control, "door") == MOST);
    never_within(OBSERVATION.min(Duration::from_millis(300)), "the line is too long", || {
        waiters_of(&mut control, "door") != MOST
    });
    assert_eq!(control.info("errorstats", "errorstat_QUEUEFULL").as_deref(), Some("count=55"));
    drop((rush, waiters));
}
