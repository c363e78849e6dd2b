//! What those who wait with Redisson hear of LOCK commands. Its scripts are spoken in clients/interop.rs.

use support::{Client, OBSERVATION, Reply, Server, Waiter, never_within};

/// On which Redisson tells of a release.
const CHANNEL: &str = "redisson_lock__channel:{door}";

/// A client that listens as one that waits does.
#[track_caller]
fn listener(server: &Server) -> Client {
    let mut client = server.client();
    assert!(!client.run(&format!("SUBSCRIBE {CHANNEL}")).is_error());
    client
}

#[test]
fn no_release_is_told_to_those_who_wait_with_redisson() {
    let server = Server::start();
    let (mut raw, mut waiting) = (server.client(), listener(&server));
    assert_eq!(raw.run("LOCK.REENTER door raw PX 60000"), 1);
    assert_eq!(raw.run("LOCK.RELEASE door raw"), 0);
    let heard = waiting.receive_within(OBSERVATION);
    assert!(matches!(heard, Reply::Other(_)), "{heard:?}");
    let mut waiting = listener(&server);
    assert_eq!(raw.run(&format!("PUBLISH {CHANNEL} 0")), 2);
    assert_eq!(waiting.receive().items()[2], Reply::text("0"));
}

/// RReadWriteLock and RSemaphore, whose layouts are no lock's.
#[test]
fn what_else_redisson_writes_is_no_lock() {
    let server = Server::start();
    let mut raw = server.client();
    assert_eq!(raw.run("HSET doors mode read uuid:1 1"), 2);
    assert_eq!(raw.run("HSET door mode write uuid:1:write 1"), 2);
    for take in ["LOCK.REENTER", "LOCK.ACQUIRE", "LOCK.SHARE"] {
        assert_eq!(raw.run(&format!("{take} doors raw PX 9000")).code(), "WRONGTYPE", "{take}");
        assert_eq!(raw.run(&format!("{take} door raw PX 9000")).code(), "WRONGTYPE", "{take}");
    }
    // A String with the number of permits that are left: somebody's mutex, whose token it would be.
    raw.ok("SET permits 3");
    assert_eq!(raw.run("LOCK.SHARE permits raw PX 9000"), Reply::Nil);
}

/// RFencedLock counts how often it is taken.
#[test]
fn fencing_tokens_drawn_from_redissons_counter_rise_with_its_own() {
    let server = Server::start();
    let mut raw = server.client();
    assert_eq!(raw.run("INCR redisson_lock_token:{door}"), 1);
    assert_eq!(raw.run("LOCK.REENTER door raw PX 60000"), 1);
    let drawn = raw.run("LOCK.FENCE door raw redisson_lock_token:{door}").int();
    assert!(drawn > 1, "{drawn}");
    assert_eq!(raw.run("INCR redisson_lock_token:{door}"), drawn + 1);
}

/// The thread of a process that has moved may hold the lock as the thread of one that has not.
#[test]
fn who_stands_in_line_is_served_before_those_who_wait_with_redisson() {
    let server = Server::start();
    let mut raw = server.client();
    assert_eq!(raw.run("HSET door uuid:1 1"), 1);
    assert_eq!(raw.run("PEXPIRE door 30000"), 1);
    let mut waiting = listener(&server);
    let mut bob = Waiter::start(&server, "LOCK.REENTER door bob PX 90000 BLOCK 0");
    // What its script does.
    let release = "redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], 0)";
    raw.call(&["EVAL", release, "2", "door", CHANNEL]);
    assert_eq!(waiting.receive().items()[2], Reply::text("0"));
    assert_eq!(bob.reply(), 1);
    never_within(OBSERVATION, "somebody else has it", || raw.run("HGET door bob") != "1");
}
