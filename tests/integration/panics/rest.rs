//! What a panic must not leave behind: something for which the timer would run for ever.

use std::time::Duration;

use support::{Client, Setup, Waiter, eventually, happens_within, info_lock};

/// Several times as long as the ticks by which the module watches the loop while there is something to do.
const SEVERAL_TICKS: Duration = Duration::from_millis(500);

/// Whether the timer does not run: where it begins is a failpoint, which stays armed.
fn timer_rests(admin: &mut Client) -> bool {
    assert_eq!(admin.run("FAILPOINT timer 0"), 1);
    let has_run = happens_within(SEVERAL_TICKS, || admin.run("FAILPOINT") == 0);
    assert_eq!(admin.run("FAILPOINT nothing 0"), 1);
    !has_run
}

#[test]
fn timer_stops_after_interrupted_grant() {
    let server = Setup::new().with_failpoints().allow_bugs().config("lock.rejoin-grace-ms 0").start();
    let (mut admin, mut alice) = (server.client(), server.client());
    // The first grant is not interrupted.
    for entry in ["nothing", "free"] {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        assert_eq!(admin.run(&format!("FAILPOINT {entry} 0")), 1);
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
        drop(bob);
        eventually("everybody has left", || info_lock(&mut admin, "waiters") == 0);
        // One more run may be due when everybody leaves.
        let rests = (0..5).filter(|_| timer_rests(&mut admin)).count();
        assert!(rests >= 4, "after a panic in {entry} the timer rested {rests} times of 5");
    }
}
