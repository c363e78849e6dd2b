//! Places in line: requests that share one, places that are kept for those who come back, and how they go.

use std::time::{Duration, Instant};

use support::{Client, Reply, Server, Waiter, eventually, field, info_lock, waiters_of};

const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// A server where `holder` has the mutex `door`, with this much grace for those who leave.
#[track_caller]
fn held(grace_ms: u32) -> (Server, Client) {
    let server = Server::start();
    let mut control = server.client();
    control.ok(&format!("CONFIG SET lock.rejoin-grace-ms {grace_ms}"));
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    (server, control)
}

/// The tokens in line, first in line first.
#[track_caller]
fn line(control: &mut Client) -> Vec<String> {
    control.run("LOCK.WAITERS door").items().iter().map(|waiter| waiter.get("token").string()).collect()
}

#[track_caller]
fn wait_as(server: &Server, take: &str, token: &str) -> Waiter {
    Waiter::start(server, &format!("{take} door {token} BLOCK 0"))
}

/// The waiter hangs up, and the server has seen it.
#[track_caller]
fn hangs_up(control: &mut Client, waiter: Waiter) {
    let before = waiters_of(control, "door");
    drop(waiter);
    eventually("the waiter has left", || waiters_of(control, "door") == before - 1);
}

#[test]
fn requests_of_one_token_share_a_place_and_one_grant_answers_them_all() {
    for take in TAKE {
        let (server, mut control) = held(10_000);
        let mut first = wait_as(&server, take, "alice");
        let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        let mut second = wait_as(&server, take, "alice");
        let mut third = Waiter::start(&server, &format!("{take} door alice BLOCK 60000 PX 60000"));
        assert_eq!(waiters_of(&mut control, "door"), 4, "requests are counted");
        assert_eq!(info_lock(&mut control, "waiters"), 4);
        assert_eq!(line(&mut control)[3], "bob", "who came between them is behind them");
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        for waiter in [&mut first, &mut second, &mut third] {
            assert_eq!(waiter.reply(), 1, "{take}");
        }
        assert_eq!(field(&mut control, "door", "owner"), "alice");
        assert_eq!(field(&mut control, "door", "holds"), 1, "{take}: one hold for them all");
        assert!(bob.is_blocked());
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    }
}

#[test]
fn each_request_has_a_block_of_its_own() {
    let (server, mut control) = held(10_000);
    let mut long = wait_as(&server, "LOCK.ACQUIRE", "alice");
    let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    let mut short = Waiter::send(&server, "LOCK.ACQUIRE door alice BLOCK 50");
    assert_eq!(short.reply(), Reply::Nil);
    assert!(long.is_blocked());
    hangs_up(&mut control, wait_as(&server, "LOCK.ACQUIRE", "alice"));
    assert_eq!(line(&mut control), ["alice", "bob"]);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(long.reply(), 1);
    assert!(bob.is_blocked());
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}

#[test]
fn the_other_kind_is_another_place_which_a_grant_gives_up() {
    let (server, mut control) = held(10_000);
    let mut mutex = wait_as(&server, "LOCK.ACQUIRE", "alice");
    let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    let mut reentrant = wait_as(&server, "LOCK.REENTER", "alice");
    let kinds = control.run("LOCK.WAITERS door");
    let kinds: Vec<String> = kinds.items().iter().map(|waiter| waiter.get("kind").string()).collect();
    assert_eq!(kinds, ["mutex", "mutex", "reentrant"]);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(mutex.reply(), 1);
    assert_eq!(reentrant.reply(), Reply::Nil);
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
}

/// How a waiter leaves and whether it has its answer.
const LEAVE: [&str; 3] = ["hangs up", "is killed", "times out"];

#[track_caller]
fn leaves(server: &Server, control: &mut Client, take: &str, token: &str, how: &str) {
    let before = waiters_of(control, "door");
    match how {
        "times out" => {
            let mut waiter = Waiter::send(server, &format!("{take} door {token} BLOCK 60"));
            assert_eq!(waiter.reply(), Reply::Nil);
        }
        "is killed" => {
            let waiter = wait_as(server, take, token);
            assert_eq!(control.run(&format!("CLIENT KILL ID {}", waiter.id())), 1);
        }
        _ => drop(wait_as(server, take, token)),
    }
    eventually("the waiter has left", || waiters_of(control, "door") == before);
}

#[test]
fn who_comes_back_stands_where_it_stood() {
    for take in TAKE {
        for how in LEAVE {
            let (server, mut control) = held(10_000);
            leaves(&server, &mut control, take, "alice", how);
            let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
            assert_eq!(line(&mut control), ["bob"], "{how}: who is away is not listed");
            let mut alice = wait_as(&server, take, "alice");
            assert_eq!(line(&mut control), ["alice", "bob"], "{take} {how}");
            assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
            assert_eq!(alice.reply(), 1);
            assert!(bob.is_blocked());
            assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
            assert_eq!(bob.reply(), 1);
        }
    }
}

#[test]
fn a_place_is_kept_again_and_again() {
    let (server, mut control) = held(10_000);
    leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", "hangs up");
    let _bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    for how in ["times out", "hangs up", "times out", "is killed"] {
        leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", how);
    }
    let _alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
    assert_eq!(line(&mut control), ["alice", "bob"]);
}

#[test]
fn who_is_away_holds_nobody_up_and_is_not_counted() {
    let (server, mut control) = held(10_000);
    for how in LEAVE {
        leaves(&server, &mut control, "LOCK.ACQUIRE", how.split(' ').next_back().expect("a word"), how);
    }
    assert_eq!(waiters_of(&mut control, "door"), 0);
    assert_eq!(info_lock(&mut control, "waiters"), 0);
    assert_eq!(control.run("LOCK.WAITERS door"), Reply::List(vec![]));
    let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    assert_eq!(waiters_of(&mut control, "door"), 1);
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(control.run("LOCK.RELEASE door bob"), 0);
    assert_eq!(control.run("EXISTS door"), 0, "it is not kept free for anybody, nor given to who is not there");
    assert_eq!(control.run("LOCK.ACQUIRE door carol"), 1, "and may be taken");
}

#[test]
fn without_grace_no_place_is_kept() {
    for how in LEAVE {
        let (server, mut control) = held(0);
        leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", how);
        let _bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        let _alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
        assert_eq!(line(&mut control), ["bob", "alice"], "{how}");
    }
}

#[test]
fn a_place_is_dropped_after_the_grace() {
    const GRACE_MS: u32 = 150;
    for how in LEAVE {
        let (server, mut control) = held(GRACE_MS);
        leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", how);
        let left = Instant::now();
        let _bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        let grace = Duration::from_millis(u64::from(GRACE_MS) + 20);
        eventually("the grace is over", || left.elapsed() > grace);
        let _alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
        assert_eq!(line(&mut control), ["bob", "alice"], "{how}");
    }
}

#[test]
fn an_attempt_that_does_not_wait_neither_takes_nor_gives_up_the_place() {
    let (server, mut control) = held(10_000);
    leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", "hangs up");
    let bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    assert_eq!(control.run("LOCK.ACQUIRE door alice"), Reply::Nil);
    assert_eq!(line(&mut control), ["bob"]);
    let _alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
    assert_eq!(line(&mut control), ["alice", "bob"]);
    drop(bob);
}

#[test]
fn release_by_a_waiting_token_answers_its_requests_nil_and_gives_the_place_up() {
    for take in TAKE {
        let (server, mut control) = held(10_000);
        let mut alices = [wait_as(&server, take, "alice"), wait_as(&server, take, "alice")];
        let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        assert_eq!(control.run("LOCK.RELEASE door alice"), Reply::Nil, "that was all there was to do");
        for alice in &mut alices {
            assert_eq!(alice.reply(), Reply::Nil, "{take}");
        }
        assert_eq!(control.run("LOCK.RELEASE door alice").code(), "NOTOWNER");
        assert_eq!(line(&mut control), ["bob"]);
        let _again = wait_as(&server, take, "alice");
        assert_eq!(line(&mut control), ["bob", "alice"], "it begins at the end");
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(bob.reply(), 1);
    }
}

#[test]
fn release_gives_up_a_place_that_is_away_and_those_of_both_kinds() {
    let (server, mut control) = held(10_000);
    for take in TAKE {
        leaves(&server, &mut control, take, "alice", "hangs up");
    }
    let bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    assert_eq!(control.run("LOCK.RELEASE door alice"), Reply::Nil);
    let _alices = TAKE.map(|take| wait_as(&server, take, "alice"));
    assert_eq!(line(&mut control), ["bob", "alice", "alice"]);
    drop(bob);
}

/// Who comes back to the place asks for what the lock is granted with: the copies before it were answered, or are gone.
#[test]
fn a_copy_that_comes_back_to_its_place_brings_its_own_lease() {
    for (first, again, granted) in [("", "PX 60000", 60_000), ("PX 90000", "PX 60000", 60_000), ("PX 60000", "", -1)] {
        let (server, mut control) = held(10_000);
        assert_eq!(server.client().run(&format!("LOCK.ACQUIRE door alice {first} BLOCK 20")), Reply::Nil);
        let bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        let mut alice = Waiter::start(&server, &format!("LOCK.ACQUIRE door alice {again} BLOCK 0"));
        assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(alice.reply(), 1, "at its old place");
        let left = control.pttl("door");
        let expected = if granted < 0 { left == -1 } else { (granted - 10_000..=granted).contains(&left) };
        assert!(expected, "{first} and then {again}: {left}");
        drop(bob);
    }
}

/// What may be in the way of those who wait, besides another holder.
const IN_THE_WAY: [&str; 4] = ["LPUSH door x", "HSET door a 1 b 2", "HSET door alice none", "SADD door x"];

#[test]
fn release_withdraws_whatever_the_key_holds() {
    for obstacle in IN_THE_WAY {
        let (server, mut control) = held(10_000);
        let mut alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
        let bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
        control.send_together(&["MULTI", "DEL door", obstacle, "EXEC"]);
        assert!((0..4).all(|_| !control.receive().is_error()));
        assert_eq!(control.run("LOCK.RELEASE door alice"), Reply::Nil, "{obstacle}");
        assert_eq!(alice.reply(), Reply::Nil);
        assert_eq!(control.run("LOCK.RELEASE door alice").code(), "WRONGTYPE", "{obstacle}");
        assert!(bob.is_blocked());
        assert_eq!(control.run("DEL door"), 1);
        assert_eq!(bob.into_client().0, 1, "alice is not in his way");
    }
}

#[test]
fn release_by_a_holder_that_also_waits_ends_both() {
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door alice"), 1);
    let mut strict = Waiter::start(&server, "LOCK.ACQUIRE door alice NX BLOCK 0");
    let mut reentrant = wait_as(&server, "LOCK.REENTER", "alice");
    let mut bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(strict.reply(), Reply::Nil);
    assert_eq!(reentrant.reply(), Reply::Nil);
    assert_eq!(bob.reply(), 1, "the first of the others");
    assert_eq!(waiters_of(&mut control, "door"), 0);
}

#[test]
fn places_that_are_away_are_the_first_to_go() {
    let (server, mut control) = held(60_000);
    control.ok("CONFIG SET lock.max-waiters 4");
    for away in ["first", "second"] {
        leaves(&server, &mut control, "LOCK.ACQUIRE", away, "hangs up");
    }
    let present = ["bob", "carol", "dave"].map(|name| wait_as(&server, "LOCK.ACQUIRE", name));
    // The first had to make room for dave; the second is still where it was.
    let _second = wait_as(&server, "LOCK.ACQUIRE", "second");
    assert_eq!(line(&mut control), ["second", "bob", "carol", "dave"]);
    let full = control.run("LOCK.ACQUIRE door first BLOCK 0");
    assert_eq!(full.code(), "QUEUEFULL", "nobody who is present has to go");
    let [bob, ..] = present;
    hangs_up(&mut control, bob);
    let _first = wait_as(&server, "LOCK.ACQUIRE", "first");
    assert_eq!(line(&mut control), ["second", "carol", "dave", "first"]);
    assert_eq!(control.run("LOCK.ACQUIRE door bob BLOCK 0").code(), "QUEUEFULL");
}

#[test]
fn a_free_lock_goes_to_who_asks_and_its_own_place_is_gone_with_it() {
    let (server, mut control) = held(10_000);
    leaves(&server, &mut control, "LOCK.ACQUIRE", "alice", "hangs up");
    assert_eq!(control.run("LOCK.RELEASE door holder"), 0);
    assert_eq!(control.run("LOCK.ACQUIRE door alice"), 1);
    let _bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    // Had the old place been kept, alice would now stand before bob.
    let _again = Waiter::start(&server, "LOCK.ACQUIRE door alice NX BLOCK 0");
    assert_eq!(line(&mut control), ["bob", "alice"]);
}

#[test]
fn in_a_transaction_nothing_waits_and_no_place_is_taken() {
    let (server, mut control) = held(10_000);
    control.ok("MULTI");
    assert_eq!(control.run("LOCK.ACQUIRE door alice BLOCK 0"), "QUEUED");
    assert_eq!(control.run("EXEC"), Reply::list([Reply::Nil]));
    let _bob = wait_as(&server, "LOCK.ACQUIRE", "bob");
    let _alice = wait_as(&server, "LOCK.ACQUIRE", "alice");
    assert_eq!(line(&mut control), ["bob", "alice"]);
}
