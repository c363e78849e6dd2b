//! `HOLD n` says which hold is meant, so that a REENTER or RELEASE may be sent twice.

use support::{Aof, Client, OBSERVATION, Reply, Server, Setup, Waiter, field, never_within, remaining_ms};

/// A server where `alice` has so many holds of `door`, with a lease of ten minutes.
#[track_caller]
fn with_holds(holds: i64) -> (Server, Client) {
    let server = Server::start();
    let mut alice = server.client();
    for hold in 1..=holds {
        assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), hold);
    }
    (server, alice)
}

#[track_caller]
fn holds_of(client: &mut Client) -> i64 {
    field(client, "door", "holds").int()
}

#[test]
fn reenter_takes_the_hold_that_comes_next() {
    let (_server, mut alice) = with_holds(0);
    for hold in 1..=4 {
        assert_eq!(alice.run(&format!("LOCK.REENTER door alice HOLD {hold}")), hold);
        assert_eq!(holds_of(&mut alice), hold);
    }
    assert_eq!(alice.run("HGETALL door"), Reply::list([Reply::text("alice"), Reply::text("4")]));
}

#[test]
fn reenter_confirms_the_hold_that_was_taken_last() {
    let (_server, mut alice) = with_holds(0);
    for hold in 1..=3 {
        for _ in 0..3 {
            assert_eq!(alice.run(&format!("LOCK.REENTER door alice HOLD {hold}")), hold);
        }
    }
    assert_eq!(holds_of(&mut alice), 3);
}

#[test]
fn reenter_refuses_every_other_hold() {
    for present in [1, 3] {
        let (_server, mut alice) = with_holds(present);
        for hold in (1..=6).chain([i64::MAX]).filter(|hold| ![present, present + 1].contains(hold)) {
            let reply = alice.run(&format!("LOCK.REENTER door alice HOLD {hold}"));
            assert_eq!(reply.code(), "HOLDMISMATCH", "{hold} at {present}");
            assert_eq!(holds_of(&mut alice), present);
        }
    }
}

#[test]
fn a_later_hold_without_the_earlier_ones_is_refused_at_once() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    for hold in [2, 7] {
        let line = format!("LOCK.REENTER door alice HOLD {hold} BLOCK 0");
        assert_eq!(alice.run(&line).code(), "NOTHELD");
        assert_eq!(alice.run("EXISTS door"), 0);
        for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
            assert_eq!(bob.run(&format!("{take} door bob")), 1);
            assert_eq!(alice.run(&line).code(), "NOTOWNER", "{take}: it does not wait");
            assert_eq!(bob.run("LOCK.RELEASE door bob"), 0);
        }
    }
}

#[test]
fn the_first_hold_waits_like_any_request() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.REENTER door bob"), 1);
    assert_eq!(control.run("LOCK.REENTER door alice HOLD 1"), Reply::Nil);
    let mut alice = Waiter::start(&server, "LOCK.REENTER door alice HOLD 1 BLOCK 0");
    assert_eq!(control.run("LOCK.RELEASE door bob HOLD 1"), 0);
    assert_eq!(alice.reply(), 1);
    let mut alice = alice.into_ready();
    assert_eq!(alice.run("LOCK.REENTER door alice HOLD 1 BLOCK 0"), 1, "sent again after the grant");
    assert_eq!(alice.run("LOCK.REENTER door alice HOLD 2"), 2);
}

#[test]
fn release_gives_up_the_hold_that_was_taken_last_and_confirms_it() {
    let (_server, mut alice) = with_holds(4);
    for hold in (2..=4).rev() {
        for _ in 0..3 {
            assert_eq!(alice.run(&format!("LOCK.RELEASE door alice HOLD {hold}")), hold - 1);
            assert_eq!(holds_of(&mut alice), hold - 1);
        }
    }
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 1"), 0);
    assert_eq!(alice.run("EXISTS door"), 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 1").code(), "NOTHELD");
}

#[test]
fn release_refuses_every_other_hold() {
    for present in [1, 3] {
        let (_server, mut alice) = with_holds(present);
        for hold in (1..=6).chain([i64::MAX]).filter(|hold| ![present, present + 1].contains(hold)) {
            let reply = alice.run(&format!("LOCK.RELEASE door alice HOLD {hold}"));
            assert_eq!(reply.code(), "HOLDMISMATCH", "{hold} at {present}");
            assert_eq!(holds_of(&mut alice), present);
        }
    }
}

#[test]
fn release_by_somebody_else_is_refused_whatever_the_hold() {
    let (_server, mut alice) = with_holds(2);
    for hold in 1..=3 {
        assert_eq!(alice.run(&format!("LOCK.RELEASE door bob HOLD {hold}")).code(), "NOTOWNER");
        assert_eq!(alice.run(&format!("LOCK.RELEASE gate alice HOLD {hold}")).code(), "NOTHELD");
    }
    assert_eq!(holds_of(&mut alice), 2);
}

#[test]
fn a_mutex_has_one_hold() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 3").code(), "HOLDMISMATCH");
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 2"), 1, "a second hold would have been given up already");
    assert_eq!(alice.run("GET door"), "alice");
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 1"), 0);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice HOLD 1").error(), "ERR syntax error");
    assert_eq!(alice.run("EXISTS door"), 0);
}

#[test]
fn the_lock_is_handed_over_with_the_first_hold_only() {
    let (server, mut alice) = with_holds(2);
    let mut bob = Waiter::start(&server, "LOCK.REENTER door bob HOLD 1 BLOCK 0");
    for _ in 0..2 {
        assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 2"), 1);
    }
    never_within(OBSERVATION, "bob is served", || !bob.is_blocked());
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 1"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 1").code(), "NOTOWNER");
    assert_eq!(holds_of(&mut alice), 1);
}

#[test]
fn a_lease_that_comes_with_a_confirmed_hold_only_lengthens() {
    let (_server, mut alice) = with_holds(2);
    let end = alice.expires_at("door");
    for line in ["LOCK.REENTER door alice HOLD 2 PX 10", "LOCK.RELEASE door alice HOLD 3 PX 10"] {
        assert_eq!(alice.run(line), 2);
        assert_eq!(alice.expires_at("door"), end, "{line}");
    }
    assert_eq!(alice.run("LOCK.REENTER door alice HOLD 2 PX 900000"), 2);
    assert!(remaining_ms(&mut alice, "door") > 800_000);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 3 PX 1200000"), 2);
    assert!(remaining_ms(&mut alice, "door") > 1_100_000);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 2 PX 1500000"), 1);
    assert!(remaining_ms(&mut alice, "door") > 1_400_000);
}

#[test]
fn a_confirmed_hold_writes_nothing() {
    let server = Setup::new().config(Aof::CONFIG).start();
    let mut alice = server.client();
    for hold in 1..=2 {
        assert_eq!(alice.run(&format!("LOCK.REENTER door alice HOLD {hold}")), hold);
    }
    let before = server.aof().commands().len();
    assert_eq!(alice.run("LOCK.REENTER door alice HOLD 2"), 2);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 3"), 2);
    assert!(alice.run("LOCK.REENTER door alice HOLD 9").is_error());
    assert_eq!(server.aof().commands().len(), before);
    assert_eq!(alice.run("LOCK.RELEASE door alice HOLD 2"), 1);
    assert_eq!(server.aof().commands().split_off(before), ["HSET door alice 1"]);
}

#[test]
fn in_a_transaction_and_in_a_script() {
    let (_server, mut alice) = with_holds(1);
    alice.ok("MULTI");
    for line in ["LOCK.REENTER door alice HOLD 2", "LOCK.REENTER door alice HOLD 2", "LOCK.RELEASE door alice HOLD 2"] {
        assert_eq!(alice.run(line), "QUEUED");
    }
    assert_eq!(alice.run("EXEC"), Reply::list([Reply::Int(2), Reply::Int(2), Reply::Int(1)]));
    let script = "return redis.call('LOCK.REENTER', KEYS[1], 'alice', 'HOLD', ARGV[1])";
    for hold in ["2", "2"] {
        assert_eq!(alice.call(&["EVAL", script, "1", "door", hold]), 2);
    }
}

#[test]
fn a_hold_that_is_no_number_of_one_is_refused_and_nothing_changes() {
    const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
    const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
    const SYNTAX: &str = "ERR syntax error";
    let (_server, mut alice) = with_holds(1);
    let cases = [
        ("HOLD 0", NOT_POSITIVE),
        ("HOLD -1", NOT_POSITIVE),
        ("HOLD -9223372036854775808", NOT_POSITIVE),
        ("HOLD text", NOT_AN_INTEGER),
        ("HOLD 1.0", NOT_AN_INTEGER),
        ("HOLD +2", NOT_AN_INTEGER),
        ("HOLD 02", NOT_AN_INTEGER),
        ("HOLD 9223372036854775808", NOT_AN_INTEGER),
        ("HOLD", SYNTAX),
        ("HOLD 2 HOLD 2", SYNTAX),
        ("HOLD 2 HOLD 1", SYNTAX),
        ("HOLD PX 100", NOT_AN_INTEGER),
    ];
    for command in ["LOCK.REENTER", "LOCK.RELEASE"] {
        for (options, error) in cases {
            assert_eq!(alice.run(&format!("{command} door alice {options}")).error(), error, "{command} {options}");
            assert_eq!(alice.run(&format!("{command} free alice {options}")).error(), error, "{command} {options}");
        }
    }
    for command in ["LOCK.ACQUIRE door alice HOLD 1", "LOCK.EXTEND door alice PX 9 HOLD 1"] {
        assert_eq!(alice.run(command).error(), SYNTAX);
    }
    assert_eq!(alice.run("EXISTS free"), 0);
    assert_eq!(holds_of(&mut alice), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice hold 2"), 2, "words are read in any case");
}

#[test]
fn the_highest_number_of_holds() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run(&format!("HSET door alice {}", i64::MAX - 1)), 1);
    assert_eq!(alice.run(&format!("LOCK.REENTER door alice HOLD {}", i64::MAX)), i64::MAX);
    assert_eq!(alice.run(&format!("LOCK.REENTER door alice HOLD {}", i64::MAX)), i64::MAX);
    assert!(alice.run("LOCK.REENTER door alice").error().starts_with("ERR "));
    assert_eq!(alice.run(&format!("LOCK.RELEASE door alice HOLD {}", i64::MAX)), i64::MAX - 1);
}
