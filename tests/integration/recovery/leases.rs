//! Leases in a period: as long as the old master may grant locks, a lease that it knows to end must end here, too.

use support::sessions::is_renewed;
use support::{Client, Server, Setup, eventually, info_lock};

use super::held_back::remaining_ms;

/// The longest lease, and a period in whose first part, which no test outlives, the old master may grant locks.
const LONGEST: &str = "lock.max-lease-ms 500000";
const WITH_A_FIRST_PART: &str = "lock.recovery-ms 1000000";
/// A period that has none: a server that starts again, and is never replaced.
const WITHOUT_A_FIRST_PART: &str = "lock.recovery-ms 500000";

/// A server where alice holds `door`, `hall` and `yard`, in the first part of its period.
#[track_caller]
fn with_a_holder() -> (Server, Client) {
    let server = Setup::new().config(LONGEST).start();
    let mut client = server.client();
    for line in ["LOCK.ACQUIRE door", "LOCK.REENTER hall", "LOCK.SHARE yard"] {
        assert_eq!(client.run(&format!("{line} alice PX 300000")), 1);
    }
    client.ok(&format!("CONFIG SET {WITH_A_FIRST_PART}"));
    assert!(remaining_ms(&mut client) > 0);
    (server, client)
}

/// Requests that lengthen the leases.
const LENGTHENING: [&str; 6] = [
    "LOCK.EXTEND door alice PX 400000",
    "LOCK.EXTEND yard alice PX 400000",
    "LOCK.EXTEND door alice PX 1000 ADD",
    "LOCK.ACQUIRE door alice PX 400000",
    "LOCK.REENTER hall alice PX 400000",
    "LOCK.SHARE yard alice PX 400000",
];

#[test]
fn no_lease_is_lengthened_while_the_old_master_may_grant() {
    let (_server, mut client) = with_a_holder();
    for line in LENGTHENING {
        assert_eq!(client.run(line).code(), "TRYAGAIN", "{line}");
    }
    for key in ["door", "hall", "yard"] {
        assert!((1..=300_000).contains(&client.pttl(key)), "the lease of {key} is as it was");
    }
    client.ok(&format!("CONFIG SET {WITHOUT_A_FIRST_PART}"));
    assert!(remaining_ms(&mut client) > 0);
    for line in LENGTHENING {
        assert!(client.run(line).int() > 0, "{line}");
    }
}

#[test]
fn what_lengthens_no_lease_is_done() {
    let (_server, mut client) = with_a_holder();
    for (line, reply) in [
        ("LOCK.ACQUIRE door alice PX 1000", 1),
        ("LOCK.REENTER hall alice PX 1000", 2),
        ("LOCK.SHARE yard alice PX 1000", 1),
        ("LOCK.RELEASE hall alice", 1),
        ("LOCK.RELEASE door alice", 0),
        ("LOCK.RELEASE yard alice", 0),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
}

#[test]
fn a_session_is_not_renewed_until_then_and_keeps_its_turn() {
    let server = Setup::new().config(LONGEST).start();
    let (mut alice, mut control) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 300 SESSION"), 1);
    control.ok(&format!("CONFIG SET {WITH_A_FIRST_PART}"));
    eventually("the lease ends", || control.run("EXISTS door") == 0);
    assert_eq!(info_lock(&mut control, "sessions"), 1);
    control.ok("CONFIG SET lock.recovery-ms 0");
    eventually("the session has its lock again", || control.run("GET door") == "alice");
    is_renewed(&mut control, "door");
}
