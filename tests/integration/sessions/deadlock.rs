//! Two connections that wait for each other's locks: docs/guides/choosing.md.

use std::thread;
use std::time::Duration;

use support::{Reply, Server, Waiter, bytes_of};

/// The lease of each lock. The server renews it while the connection is open, so a deadlock outlasts it.
const LEASE_MS: u64 = 100;

#[test]
fn deadlock_of_two_sessions_ends_with_a_block() {
    let server = Server::start();
    let [mut alice, mut bob] = [(); 2].map(|()| server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE north alice-1 PX 100 SESSION"), 1);
    assert_eq!(bob.run("LOCK.ACQUIRE south bob-1 PX 100 SESSION"), 1);
    let mut bob = Waiter::start_on(&server, bob, &bytes_of("LOCK.ACQUIRE north bob-2 PX 100 SESSION BLOCK 0"));
    let alice = Waiter::start_on(&server, alice, &bytes_of("LOCK.ACQUIRE south alice-2 PX 100 SESSION BLOCK 2000"));
    thread::sleep(Duration::from_millis(8 * LEASE_MS));
    assert!(alice.is_blocked() && bob.is_blocked(), "no lease ends a deadlock of sessions");

    let (reply, mut alice) = alice.into_client();
    assert_eq!(reply, Reply::Nil, "the end of its BLOCK");
    assert!(bob.is_blocked(), "alice still holds a lock");
    assert_eq!(alice.run("LOCK.RELEASE south alice-2"), Reply::Nil);
    assert_eq!(alice.run("LOCK.RELEASE north alice-1"), 0);
    assert_eq!(bob.reply(), 1);
}
