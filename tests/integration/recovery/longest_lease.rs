//! `lock.max-lease-ms`: the longest lease, without which the length of a recovery period could not be chosen.

use support::sessions::is_renewed;
use support::{Client, Reply, Server, Waiter, Way, eventually, field, remaining_ms};

const LIMIT: &str = "CONFIG SET lock.max-lease-ms 60000";

#[track_caller]
fn is_refused(client: &mut Client, line: &str) {
    assert_eq!(client.run(line).code(), "LEASELIMIT", "{line}");
}

#[test]
fn a_lease_that_is_too_long_or_missing_is_refused_whoever_holds_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(LIMIT);
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"] {
        let all = ["", " PX 60001", " EX 61", " BLOCK 0", " PX 60001 SESSION"];
        all.iter().for_each(|options| is_refused(&mut client, &format!("{take} door alice{options}")));
        assert_eq!(client.run("EXISTS door"), 0);
        assert_eq!(client.run(&format!("{take} door alice PX 60000")), 1);
        all.iter().for_each(|options| is_refused(&mut client, &format!("{take} door alice{options}")));
        all.iter().for_each(|options| is_refused(&mut client, &format!("{take} door bob{options}")));
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    }
}

#[test]
fn a_lease_is_not_lengthened_beyond_it() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(LIMIT);
    for take in ["LOCK.REENTER", "LOCK.SHARE"] {
        assert_eq!(client.run(&format!("{take} door alice PX 30000")), 1);
        is_refused(&mut client, "LOCK.EXTEND door alice PX 60001");
        is_refused(&mut client, "LOCK.EXTEND door alice PX 60000 ADD");
        is_refused(&mut client, "LOCK.RELEASE door alice PX 60001");
        assert!(remaining_ms(&mut client, "door") <= 30_000, "what is refused changes nothing");
        assert_eq!(client.run("LOCK.EXTEND door alice PX 60000"), 60_000);
        assert!(client.run("LOCK.EXTEND door alice PX 10000").int() == 10_000);
        assert!(client.run("LOCK.EXTEND door alice PX 50000 ADD").int() <= 60_000);
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    }
}

#[test]
fn who_holds_nothing_is_told_of_the_lease_first_and_adds_to_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(LIMIT);
    is_refused(&mut client, "LOCK.EXTEND door alice PX 60001");
    assert_eq!(client.run("LOCK.EXTEND door alice PX 60000 ADD").code(), "NOTHELD");
    assert_eq!(client.run("LOCK.RELEASE door alice").code(), "NOTHELD");
}

#[test]
fn those_who_wait_get_no_longer_lease_than_is_allowed_when_they_are_granted() {
    for way in Way::ALL {
        let server = Server::start();
        let mut client = server.client();
        assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = way.start(&server, "LOCK.ACQUIRE door bob PX 900000 BLOCK 0");
        client.ok(LIMIT);
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
        let left = remaining_ms(&mut client, "door");
        assert!((30_000..=60_000).contains(&left), "{way:?}: {left}");
    }
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    let mut carol = Waiter::start(&server, "LOCK.SHARE door carol BLOCK 0");
    client.ok(LIMIT);
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(carol.reply(), 1);
    assert!(remaining_ms(&mut client, "door") <= 60_000, "none is the longest lease");
}

#[test]
fn a_session_is_renewed_by_no_more_and_a_running_lease_stays() {
    for take in ["LOCK.ACQUIRE", "LOCK.SHARE"] {
        let server = Server::start();
        let (mut alice, mut client) = (server.client(), server.client());
        assert_eq!(alice.run(&format!("{take} door alice PX 900 SESSION")), 1);
        assert_eq!(client.run(&format!("{take} hall alice PX 600000")), 1);
        is_renewed(&mut client, "door");
        client.ok("CONFIG SET lock.max-lease-ms 300");
        assert!(remaining_ms(&mut client, "hall") > 500_000, "a running lease stays");
        eventually("the longer lease has run down", || remaining_ms(&mut client, "door") <= 300);
        for _ in 0..3 {
            is_renewed(&mut client, "door");
            assert!(remaining_ms(&mut client, "door") <= 300, "{take}");
        }
        drop(alice);
        eventually("the lock is released", || client.run("EXISTS door") == 0);
    }
}

#[test]
fn without_the_setting_there_is_no_limit() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(LIMIT);
    client.ok("CONFIG SET lock.max-lease-ms 0");
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(field(&mut client, "door", "lease-ms"), -1);
    assert_eq!(client.run("LOCK.SHARE yard alice PX 60001"), 1);
    assert_eq!(client.run("LOCK.EXTEND door alice PX 60001").code(), "NOLEASE");
    assert_eq!(client.run("LOCK.ACQUIRE door bob"), Reply::Nil);
}
