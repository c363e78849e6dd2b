//! LOCK.EXTEND: the exact lease of a lock that the caller holds.

use support::{Client, Server, eventually, remaining_ms};

const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// Runs `check` on a held mutex and on a held re-entrant lock.
fn for_both_kinds(lease: &str, check: impl Fn(&mut Client)) {
    let server = Server::start();
    let mut alice = server.client();
    for take in TAKE {
        assert_eq!(alice.run(&format!("{take} door alice {lease}")), 1);
        check(&mut alice);
        alice.run("DEL door");
    }
}

#[test]
fn sets_the_lease_exactly_shorter_or_longer() {
    for_both_kinds("PX 30000", |alice| {
        for (option, ms) in [("PX 60000", 60_000), ("PX 5000", 5000), ("EX 40", 40_000), ("EX 3", 3000)] {
            assert_eq!(alice.run(&format!("LOCK.EXTEND door alice {option}")), ms);
            let left = remaining_ms(alice, "door");
            assert!((ms - 1000..=ms).contains(&left), "{option}: {left}");
        }
    });
}

#[test]
fn adds_to_what_remains() {
    for_both_kinds("PX 30000", |alice| {
        let end = alice.expires_at("door");
        let left = alice.run("LOCK.EXTEND door alice PX 5000 ADD").int();
        assert!((34_000..=35_000).contains(&left), "remaining {left}");
        assert_eq!(alice.expires_at("door"), end + 5000, "to the millisecond");
        let left = alice.run("LOCK.EXTEND door alice add EX 10").int();
        assert!((44_000..=45_000).contains(&left), "remaining {left}");
        assert_eq!(alice.expires_at("door"), end + 15_000);
    });
}

/// A script sees keys as they were when it began, so the lock is still there when its lease has ended.
#[test]
fn adds_to_nothing_in_a_script_that_runs_past_the_end_of_the_lease() {
    for_both_kinds("PX 20", |alice| {
        let script = "for step = 1, 2e7 do end
            return redis.call('lock.extend', KEYS[1], 'alice', 'PX', 5000, 'ADD')";
        assert_eq!(alice.call(&["EVAL", script, "1", "door"]), 5000);
        assert!(remaining_ms(alice, "door") > 4000);
    });
}

#[test]
fn answers_the_remaining_lease_in_milliseconds() {
    for_both_kinds("PX 30000", |alice| {
        let before = support::now_ms();
        let left = alice.run("LOCK.EXTEND door alice PX 20000 ADD").int();
        let after = support::now_ms();
        let end = alice.expires_at("door");
        assert!(
            (end - after..=end - before).contains(&left),
            "answered {left}, the key ends at {end}, asked between {before} and {after}"
        );
    });
}

#[test]
fn a_lock_that_never_expires_is_nolease_and_stays_so() {
    for_both_kinds("", |alice| {
        for options in ["PX 5000", "EX 5", "PX 5000 ADD"] {
            let reply = alice.run(&format!("LOCK.EXTEND door alice {options}"));
            assert_eq!(reply.code(), "NOLEASE", "{options}");
            assert_eq!(alice.pttl("door"), -1, "{options}");
        }
    });
}

#[test]
fn only_the_holder_extends() {
    for_both_kinds("PX 30000", |alice| {
        let end = alice.expires_at("door");
        for options in ["PX 60000", "EX 1", "PX 60000 ADD"] {
            let reply = alice.run(&format!("LOCK.EXTEND door bob {options}"));
            assert_eq!(reply.code(), "NOTOWNER", "{options}");
        }
        assert_eq!(alice.expires_at("door"), end);
    });
    for_both_kinds("", |alice| {
        let reply = alice.run("LOCK.EXTEND door bob PX 60000");
        assert_eq!(reply.code(), "NOTOWNER", "whose lock it is comes first");
    });
}

#[test]
fn extending_what_nobody_holds_is_notheld_and_takes_nothing() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.EXTEND door alice PX 5000").code(), "NOTHELD");
    assert_eq!(alice.run("EXISTS door"), 0);
    for take in TAKE {
        assert_eq!(alice.run(&format!("{take} door alice PX 20")), 1);
        eventually("the lease ends", || alice.pttl("door") == -2);
        let reply = alice.run("LOCK.EXTEND door alice PX 5000");
        assert_eq!(reply.code(), "NOTHELD", "after the lease of {take}");
        assert_eq!(alice.run("EXISTS door"), 0);
    }
}

#[test]
fn a_time_that_is_not_positive_is_an_error_and_never_deletes_the_lock() {
    for_both_kinds("PX 30000", |alice| {
        let end = alice.expires_at("door");
        for options in ["PX 0", "PX -1", "EX 0", "EX -1", "PX -30000", "PX 0 ADD", "PX -1 ADD", "EX -40 ADD"] {
            let reply = alice.run(&format!("LOCK.EXTEND door alice {options}"));
            assert_eq!(reply.error(), "ERR invalid expire time in 'lock.extend' command", "{options}");
            assert_eq!(alice.expires_at("door"), end, "{options}");
        }
    });
}

#[test]
fn a_lease_beyond_the_clock_is_an_error_and_changes_nothing() {
    for_both_kinds("PX 30000", |alice| {
        let end = alice.expires_at("door");
        let most = i64::MAX;
        for options in [
            format!("PX {most}"),
            format!("EX {most}"),
            format!("EX {}", most / 1000),
            format!("PX {} ADD", most - end + 1),
            format!("PX {most} ADD"),
        ] {
            let reply = alice.run(&format!("LOCK.EXTEND door alice {options}"));
            assert_eq!(reply.error(), "ERR invalid expire time in 'lock.extend' command", "{options}");
            assert_eq!(alice.expires_at("door"), end, "{options}");
        }
    });
}

#[test]
fn adding_up_to_more_than_the_clock_can_carry_is_an_error_and_changes_nothing() {
    for_both_kinds("PX 30000", |alice| {
        let half = format!("LOCK.EXTEND door alice PX {} ADD", i64::MAX / 2);
        assert!(alice.run(&half).int() > i64::MAX / 2);
        let end = alice.expires_at("door");
        assert_eq!(alice.run(&half).error(), "ERR invalid expire time in 'lock.extend' command");
        assert_eq!(alice.expires_at("door"), end);
    });
}

#[test]
fn extending_leaves_the_holds_alone() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice"), 2);
    assert_eq!(alice.run("LOCK.EXTEND door alice PX 40000"), 40_000);
    assert_eq!(alice.run("HGET door alice"), "2");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 1);
}
