//! Requests of one token that wait for the same lock and ask for different things.

use support::{Reply, Server, Waiter, eventually, waiters_of};

/// Of copies that differ the longest lease counts, and none is the longest; but one in a session has a lease, its own at
/// least. Whichever comes first.
#[test]
fn copies_that_differ_get_the_longest_lease_and_in_a_session_one_at_all() {
    const PLAIN: &str = "LOCK.ACQUIRE door alice BLOCK 0";
    const SHORT: &str = "LOCK.ACQUIRE door alice PX 60000 BLOCK 0";
    const LONG: &str = "LOCK.ACQUIRE door alice PX 90000 BLOCK 0";
    const SESSION: &str = "LOCK.ACQUIRE door alice PX 60000 BLOCK 0 SESSION";
    for (copies, lease_ms) in
        [([SHORT, LONG], 90_000), ([PLAIN, SHORT], -1), ([PLAIN, SESSION], 60_000), ([LONG, SESSION], 90_000)]
    {
        for copies in [copies, [copies[1], copies[0]]] {
            let server = Server::start();
            let mut control = server.client();
            assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
            let mut waiters = copies.map(|line| Waiter::start(&server, line));
            assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
            assert!(waiters.iter_mut().all(|waiter| waiter.reply() == 1));
            let left = control.pttl("door");
            let expected = if lease_ms < 0 { left == -1 } else { (lease_ms - 10_000..=lease_ms).contains(&left) };
            assert!(expected, "{copies:?}: {left}");
            drop(waiters);
            if copies.contains(&SESSION) {
                eventually("the session ends", || control.run("EXISTS door") == 0);
            }
        }
    }
}

#[test]
fn a_copy_in_a_session_that_has_left_gives_no_lease_to_the_one_that_stays() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let gone = Waiter::start(&server, "LOCK.ACQUIRE door alice PX 60000 BLOCK 0 SESSION");
    let mut stays = Waiter::start(&server, "LOCK.ACQUIRE door alice BLOCK 0");
    drop(gone);
    eventually("one waits", || waiters_of(&mut control, "door") == 1);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(stays.reply(), 1);
    assert_eq!(control.pttl("door"), -1);
}

/// Two of five shares are held. The copy with LIMIT 1 leaves, and the other one has its share at once.
#[test]
fn limit_of_a_copy_that_left_counts_no_more() {
    for leaves in ["times out", "disconnects"] {
        let server = Server::start();
        let mut control = server.client();
        for name in ["one", "two"] {
            assert_eq!(control.run(&format!("LOCK.SHARE door {name} PX 600000")), 1);
        }
        let block_ms = if leaves == "times out" { 200 } else { 0 };
        let mut small = Waiter::start(&server, &format!("LOCK.SHARE door token LIMIT 1 BLOCK {block_ms}"));
        let mut large = Waiter::start(&server, "LOCK.SHARE door token LIMIT 5 BLOCK 1500");
        if leaves == "times out" {
            assert_eq!(small.reply(), Reply::Nil);
        } else {
            drop(small);
        }
        assert_eq!(large.reply(), 1, "{leaves}");
    }
}

#[test]
fn lease_of_a_copy_that_left_counts_no_more() {
    for (gone, stays, lease_ms) in [("", "PX 60000", 60_000), ("PX 90000", "PX 60000", 60_000)] {
        let server = Server::start();
        let mut control = server.client();
        assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
        let mut gone = Waiter::start(&server, &format!("LOCK.ACQUIRE door token {gone} BLOCK 100"));
        let mut stays = Waiter::start(&server, &format!("LOCK.ACQUIRE door token {stays} BLOCK 0"));
        assert_eq!(gone.reply(), Reply::Nil);
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(stays.reply(), 1);
        let left = control.pttl("door");
        assert!((lease_ms - 10_000..=lease_ms).contains(&left), "{left}");
    }
}
