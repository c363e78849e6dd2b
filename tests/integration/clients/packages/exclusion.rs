//! One key, some who lock it with a package and some with LOCK commands: each respects the other, and who waits how long.

use std::time::{Duration, Instant};

use support::{Client, OBSERVATION, Reply, Server, Waiter, info_lock, never_within, remaining_ms};

use super::fleet::{Fleet, Onlooker, Package, packages};

/// Longer than any test.
const LEASE_S: u32 = 600;

/// No LOCK command takes what somebody else holds, or does anything to it.
#[track_caller]
fn is_respected(raw: &mut Client, key: &str) {
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"] {
        assert_eq!(raw.run(&format!("{take} {key} raw PX 9000")), Reply::Nil, "{take} {key}");
    }
    assert_eq!(raw.run(&format!("LOCK.RELEASE {key} raw")).code(), "NOTOWNER", "{key}");
    assert_eq!(raw.run(&format!("LOCK.EXTEND {key} raw PX 9000")).code(), "NOTOWNER", "{key}");
}

/// LOCK commands hold what a package asks for, with this lease and for so long at most.
#[track_caller]
fn is_held_when_asked_for(package: &Package, raw: &mut Client, fleet: &mut Fleet, lease_s: u32, patience_s: u32) {
    assert_eq!(raw.run(&format!("LOCK.ACQUIRE {} raw PX 900000", package.key())), 1);
    fleet.acquire(package, lease_s, patience_s);
}

/// LOCK commands take what is written in the key as the token, and show it.
#[track_caller]
fn has_its_value_as_token(raw: &mut Client, key: &str) {
    let token = raw.call(&["GET", key]).bytes().to_vec();
    let info = raw.run(&format!("LOCK.INFO {key}"));
    assert_eq!(info.get("state"), "mutex", "{key}");
    assert_eq!(info.get("owner").bytes(), token, "{key}");
    assert!(remaining_ms(raw, key) > 500_000, "{key}");
    let fence = raw.call(&[b"LOCK.FENCE", key.as_bytes(), &token, b"fence"]);
    assert!(fence.int() > 0, "{key}: {fence:?}");
    let extend = raw.call(&[b"LOCK.EXTEND".as_slice(), key.as_bytes(), &token, b"PX", b"900000"]);
    assert_eq!(extend, 900_000, "{key}");
}

#[test]
fn what_a_package_holds_is_a_lock_and_who_stands_in_line_is_next() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let packages = packages();
    packages.iter().for_each(|package| fleet.acquire(package, LEASE_S, 1));
    for package in &packages {
        let key = package.key();
        assert!(fleet.holds(package.name), "{}", package.name);
        is_respected(&mut raw, &key);
        has_its_value_as_token(&mut raw, &key);
        let mut bob = Waiter::start(&server, &format!("LOCK.ACQUIRE {key} bob PX 90000 BLOCK 0"));
        fleet.release(package);
        assert_eq!(bob.reply(), 1, "{}", package.name);
        assert_eq!(fleet.answer(package.name), "released");
        assert_eq!(raw.run(&format!("GET {key}")), "bob");
    }
    let by_others = i64::try_from(packages.len()).expect("a few");
    assert_eq!(info_lock(&mut raw, "handovers_delete"), by_others);
}

#[test]
fn a_set_in_the_round_in_which_the_key_is_deleted_is_faster_than_who_stands_in_line() {
    let server = Server::start();
    let mut raw = server.client();
    assert_eq!(raw.run("SET door old NX PX 90000"), "OK");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 90000 BLOCK 0");
    raw.send_together(&["DEL door", "SET door faster NX PX 90000"]);
    assert_eq!(raw.receive(), 1);
    assert_eq!(raw.receive(), "OK");
    never_within(OBSERVATION, "bob has it", || !bob.is_blocked());
    assert_eq!(raw.run("DEL door"), 1);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn a_package_gives_up_what_lock_commands_hold() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let mut onlooker = Onlooker::new(&server);
    let packages = packages();
    packages.iter().for_each(|package| is_held_when_asked_for(package, &mut raw, &mut fleet, LEASE_S, 2));
    packages.iter().for_each(|package| assert!(!fleet.holds(package.name), "{}", package.name));
    let attempts = onlooker.attempts(&mut raw);
    for package in &packages {
        let tries = attempts.iter().filter(|key| **key == package.key()).count();
        assert!(tries > 1, "{}: it waits", package.name);
        assert!(package.tries.is_none_or(|expected| expected == tries), "{}: {tries} tries", package.name);
    }
}

#[test]
fn a_package_that_waits_takes_what_lock_release_frees() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let mut onlooker = Onlooker::new(&server);
    let packages = packages();
    // python-redis-lock waits for a signal as long as its lease: two seconds.
    packages.iter().for_each(|package| is_held_when_asked_for(package, &mut raw, &mut fleet, 2, 9));
    let mut waiting: Vec<String> = packages.iter().map(|package| package.key()).collect();
    while !waiting.is_empty() {
        let key = onlooker.next_attempt();
        if let Some(at) = waiting.iter().position(|waits| *waits == key) {
            assert_eq!(raw.run(&format!("LOCK.RELEASE {key} raw")), 0);
            waiting.remove(at);
        }
    }
    packages.iter().for_each(|package| assert!(fleet.holds(package.name), "{}", package.name));
}

/// python-redis-lock waits for a signal that LOCK.RELEASE does not give; as long as its lease, and without one for ever.
#[test]
fn python_redis_lock_does_not_hear_of_a_release_by_lock_commands() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let mut onlooker = Onlooker::new(&server);
    let package = packages().into_iter().find(|package| package.name == "python-redis-lock").expect("a package");
    is_held_when_asked_for(&package, &mut raw, &mut fleet, 2, 9);
    assert_eq!(onlooker.next_attempt(), package.key());
    let tried = Instant::now();
    assert_eq!(raw.run(&format!("LOCK.RELEASE {} raw", package.key())), 0);
    assert!(fleet.holds(package.name));
    assert!(tried.elapsed() > Duration::from_millis(1800), "after its own two seconds");
}

#[test]
fn while_others_stand_in_line_a_package_gets_nothing() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let mut onlooker = Onlooker::new(&server);
    let packages = packages();
    for package in &packages {
        let (key, mut turn) = (package.key(), 0);
        let ask = |turn: u32| format!("LOCK.ACQUIRE {key} turn-{turn} PX 90000 BLOCK 0");
        assert_eq!(raw.run(&ask(0)), 1);
        let mut next = Waiter::start(&server, &ask(1));
        fleet.acquire(package, LEASE_S, 2);
        // Between two attempts of the package the lock changes hands.
        let mut tries = 0;
        while tries < package.tries.unwrap_or(2) {
            assert_eq!(onlooker.next_attempt(), key);
            tries += 1;
            turn += 1;
            let after = Waiter::start(&server, &ask(turn + 1));
            assert_eq!(raw.run(&format!("LOCK.RELEASE {key} turn-{}", turn - 1)), 0);
            assert_eq!(next.reply(), 1);
            next = after;
        }
        assert!(!fleet.holds(package.name), "{}", package.name);
        onlooker.attempts(&mut raw);
    }
}

#[test]
fn a_package_that_outlives_its_lease_loses_the_lock_to_who_stands_in_line() {
    let server = Server::start();
    let (mut fleet, mut raw) = (Fleet::new(&server), server.client());
    let packages = packages();
    packages.iter().for_each(|package| fleet.acquire(package, 2, 1));
    for package in &packages {
        let (name, key) = (package.name, package.key());
        assert!(fleet.holds(name), "{name}");
        let mut bob = Waiter::send(&server, &format!("LOCK.ACQUIRE {key} bob PX 900000 BLOCK 0"));
        assert_eq!(bob.reply(), 1, "{name}");
        fleet.release(package);
        assert_eq!(fleet.answer(name), package.lost, "{name}");
        assert_eq!(raw.run(&format!("GET {key}")), "bob", "{name}");
    }
}
