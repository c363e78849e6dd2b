//! Requests of one token that wait for the same lock and ask for different things.

use support::{Server, Waiter, eventually, waiters_of};

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
