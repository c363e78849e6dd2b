//! Waiting in line: who is served, in which order, and within which limits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{
    Client, OBSERVATION, Protocol, Reply, Server, Setup, Waiter, eventually, never_within, remaining_ms, waiters_of,
};

/// How the mutex and the re-entrant lock are taken.
const TAKE: [&str; 2] = ["LOCK.ACQUIRE", "LOCK.REENTER"];

/// `names` wait for `door` in this order, each by its own name as the token.
#[track_caller]
fn line_up(server: &Server, names: &[&str]) -> Vec<Waiter> {
    let lines: Vec<String> = names.iter().map(|name| format!("LOCK.ACQUIRE door {name} BLOCK 0")).collect();
    lines.iter().map(|line| Waiter::start(server, line)).collect()
}

#[test]
fn release_grants_the_lock_to_the_waiter() {
    for take in TAKE {
        let server = Server::start();
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(&server, &format!("{take} door bob PX 30000 BLOCK 5000"));
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1, "{take}");
        let kind = alice.run("TYPE door");
        assert_eq!(kind, if take == "LOCK.ACQUIRE" { "string" } else { "hash" });
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0, "{take}");
    }
}

#[test]
fn a_free_lock_is_taken_without_waiting() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice BLOCK 0"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice BLOCK 0"), 1, "held by this very token");
    assert_eq!(alice.run("LOCK.REENTER gate alice BLOCK 0"), 1);
    assert_eq!(alice.run("LOCK.REENTER gate alice BLOCK 0"), 2, "a re-entry never waits");
}

#[test]
fn three_waiters_are_served_in_the_order_they_came() {
    for take in TAKE {
        let server = Server::start();
        let mut holder = server.client();
        assert_eq!(holder.run(&format!("{take} door holder")), 1);
        let names = ["carol", "alice", "bob"];
        let mut waiters: Vec<Waiter> =
            names.iter().map(|name| Waiter::start(&server, &format!("{take} door {name} BLOCK 0"))).collect();
        assert_eq!(waiters_of(&mut holder, "door"), 3);
        let mut current = "holder";
        for (place, name) in names.into_iter().enumerate() {
            assert_eq!(holder.run(&format!("LOCK.RELEASE door {current}")), 0);
            assert_eq!(waiters[place].reply(), 1, "{name}");
            for later in &waiters[place + 1..] {
                assert!(later.is_blocked(), "only {name} is served");
            }
            assert_eq!(waiters_of(&mut holder, "door"), 2 - i64::try_from(place).unwrap());
            current = name;
        }
        assert_eq!(holder.run(&format!("LOCK.RELEASE door {current}")), 0);
        assert_eq!(holder.run("EXISTS door"), 0);
    }
}

#[test]
fn mutex_and_reentrant_waiters_stand_in_one_line() {
    let server = Server::start();
    let mut holder = server.client();
    assert_eq!(holder.run("LOCK.REENTER door a"), 1);
    assert_eq!(holder.run("LOCK.REENTER door a"), 2);
    let mut waiters: Vec<Waiter> =
        ["LOCK.ACQUIRE door b", "LOCK.REENTER door c", "LOCK.REENTER door d", "LOCK.ACQUIRE door e"]
            .iter()
            .map(|line| Waiter::start(&server, &format!("{line} BLOCK 0 PX 60000")))
            .collect();
    assert_eq!(holder.run("LOCK.RELEASE door a"), 1);
    assert!(waiters[0].is_blocked(), "one hold remains");
    let mut current = "a";
    for (waiter, (name, kind)) in
        waiters.iter_mut().zip([("b", "string"), ("c", "hash"), ("d", "hash"), ("e", "string")])
    {
        assert_eq!(holder.run(&format!("LOCK.RELEASE door {current}")), 0);
        assert_eq!(waiter.reply(), 1, "{name}");
        assert_eq!(holder.run("TYPE door"), kind, "{name}");
        assert!(remaining_ms(&mut holder, "door") > 50_000, "{name}");
        current = name;
    }
}

#[test]
fn the_lease_counts_from_the_grant() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 300"), 1);
    let end = alice.expires_at("door");
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(bob.reply(), 1);
    let granted_until = alice.expires_at("door");
    assert!(granted_until >= end + 60_000, "{granted_until} is less than {end} and a minute");
}

#[test]
fn a_waiter_that_asked_for_no_lease_gets_none() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.pttl("door"), -1);
}

#[test]
fn a_strict_request_waits_even_for_its_own_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice NX BLOCK 20"), Reply::Nil);
    let mut again = Waiter::start(&server, "LOCK.ACQUIRE door bob NX BLOCK 0");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(again.reply(), 1);
}

#[test]
fn commands_sent_behind_a_wait_run_after_it() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = server.client();
    bob.send_together(&["LOCK.ACQUIRE door bob BLOCK 0", "GET door", "LOCK.RELEASE door bob", "PING"]);
    eventually("bob waits", || waiters_of(&mut alice, "door") == 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.receive(), 1);
    assert_eq!(bob.receive(), "bob");
    assert_eq!(bob.receive(), 0);
    assert_eq!(bob.receive(), "PONG");
}

/// BLOCK does not wait where BLPOP would not.
#[test]
fn inside_a_transaction_block_does_not_wait() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    alice.ok("MULTI");
    for line in [
        "LOCK.ACQUIRE door bob BLOCK 0",
        "LOCK.REENTER door bob BLOCK 5000",
        "LOCK.ACQUIRE gate bob BLOCK 0",
        "LOCK.REENTER yard bob BLOCK 0",
    ] {
        assert_eq!(alice.run(line), "QUEUED");
    }
    let expected = [Reply::Nil, Reply::Nil, Reply::Int(1), Reply::Int(1)];
    assert_eq!(alice.run("EXEC"), Reply::list(expected));
    assert_eq!(waiters_of(&mut alice, "door"), 0);
}

#[test]
fn inside_a_script_or_a_function_block_does_not_wait() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let call = "redis.call(ARGV[1], KEYS[1], 'bob', 'BLOCK', '0')";
    let library = format!("#!lua name=locks\nredis.register_function('take', function(KEYS, ARGV) return {call} end)");
    assert_eq!(alice.call(&["FUNCTION", "LOAD", &library]), "locks");
    for take in TAKE {
        let script = format!("return {call}");
        let eval = alice.call(&["EVAL", &script, "1", "door", take]);
        assert_eq!(eval, Reply::Nil, "EVAL {take}");
        let fcall = alice.call(&["FCALL", "take", "1", "door", take]);
        assert_eq!(fcall, Reply::Nil, "FCALL {take}");
        let free = alice.call(&["FCALL", "take", "1", take, take]);
        assert_eq!(free, 1, "a free lock is taken");
    }
    assert_eq!(waiters_of(&mut alice, "door"), 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0, "nothing hangs in the server");
}

/// Asks for the lock without waiting until it gets it, and counts in `asked` how often it did not.
fn hammer(mut client: Client, asked: &AtomicU64) {
    while client.run("LOCK.ACQUIRE door hammer") == Reply::Nil {
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_client_that_never_stops_asking_overtakes_nobody() {
    const WAITERS: usize = 30;
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    let names: Vec<String> = (0..WAITERS).map(|number| format!("waiter-{number}")).collect();
    let mut waiters = line_up(&server, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let (client, asked) = (server.client(), AtomicU64::new(0));
    thread::scope(|scope| {
        let hammering = scope.spawn(|| hammer(client, &asked));
        let mut current = "holder";
        for (number, (waiter, name)) in waiters.iter_mut().zip(&names).enumerate() {
            let free = match number % 3 {
                0 => format!("LOCK.RELEASE door {current}"),
                1 => "DEL door".to_owned(),
                _ => "PEXPIRE door 5".to_owned(),
            };
            let before = asked.load(Ordering::SeqCst);
            eventually("it asks again and again", || asked.load(Ordering::SeqCst) > before + 3);
            assert!(!control.run(&free).is_error(), "{free}");
            assert_eq!(waiter.reply(), 1, "{name}");
            assert_eq!(control.run("GET door"), name.as_str());
            assert!(!hammering.is_finished(), "{name} was overtaken");
            current = name;
        }
        assert_eq!(control.run(&format!("LOCK.RELEASE door {current}")), 0);
        hammering.join().expect("the hammering client");
    });
    assert_eq!(control.run("GET door"), "hammer", "the lock came free in the end");
}

#[test]
fn more_waiters_than_allowed_are_refused_at_once() {
    let server = Setup::new().config("lock.max-waiters 2").start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice"), 1);
    let first = Waiter::start(&server, "LOCK.ACQUIRE door a BLOCK 0");
    let _second = Waiter::start(&server, "LOCK.REENTER gate b BLOCK 0");
    for line in ["LOCK.ACQUIRE door c BLOCK 0", "LOCK.REENTER gate c BLOCK 9", "LOCK.ACQUIRE gate c NX BLOCK 9"] {
        assert_eq!(alice.run(line).code(), "QUEUEFULL", "{line}");
    }
    assert_eq!(alice.run("LOCK.ACQUIRE door c"), Reply::Nil, "who does not wait needs no room");
    assert_eq!(alice.run("LOCK.ACQUIRE yard c BLOCK 0"), 1, "a free lock needs no room");

    alice.ok("CONFIG SET lock.max-waiters 3");
    let _third = Waiter::start(&server, "LOCK.ACQUIRE door c BLOCK 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door d BLOCK 0").code(), "QUEUEFULL");
    drop(first);
    eventually("there is room again", || waiters_of(&mut alice, "door") == 1);
    drop(Waiter::start(&server, "LOCK.ACQUIRE door d BLOCK 0"));
}

#[test]
fn the_operator_can_cap_every_wait() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    alice.ok("CONFIG SET lock.max-block-ms 80");
    for take in TAKE {
        for block in [0, 60_000, 81] {
            let asked = Instant::now();
            let reply = alice.run(&format!("{take} door bob BLOCK {block}"));
            assert_eq!(reply, Reply::Nil, "{take} BLOCK {block}");
            let waited = asked.elapsed();
            assert!(waited >= Duration::from_millis(79), "{take} BLOCK {block}: {waited:?}");
            assert!(waited < Duration::from_secs(2), "{take} BLOCK {block}: {waited:?}");
        }
    }
    eventually("a shorter wait stays short", || {
        let asked = Instant::now();
        assert_eq!(alice.run("LOCK.ACQUIRE door bob BLOCK 10"), Reply::Nil);
        asked.elapsed() < Duration::from_millis(75)
    });

    alice.ok("CONFIG SET lock.max-block-ms 0");
    let uncapped = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    never_within(OBSERVATION, "the wait ends by itself", || !uncapped.is_blocked());
}

#[test]
fn the_longest_lease_and_the_longest_wait_do_not_overflow() {
    let server = Server::start();
    let mut alice = server.client();
    let most = i64::MAX / 2;
    assert_eq!(alice.run(&format!("LOCK.ACQUIRE door alice PX {most}")), 1);
    let mut bob = Waiter::start(&server, &format!("LOCK.ACQUIRE door bob PX {most} BLOCK {most}"));
    let mut carol = Waiter::send(&server, "LOCK.ACQUIRE door carol BLOCK 30");
    assert_eq!(carol.reply(), Reply::Nil);
    assert!(bob.is_blocked());
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert!(remaining_ms(&mut alice, "door") > most - 60_000);
}

/// Redis blocks a client that has subscribed to a channel, and Valkey does not. Either way who waits keeps what it asked
/// for, or both did.
#[test]
fn a_subscriber_that_is_not_blocked_leaves_no_trace_in_line() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 30000 BLOCK 0");
    let mut subscriber = server.client_speaking(Protocol::Resp3);
    subscriber.send_together(&["SUBSCRIBE news"]);
    assert!(matches!(subscriber.receive(), Reply::Push(_)));
    let repeat = ["LOCK.ACQUIRE", "door", "bob", "BLOCK", "0"];
    if server.flavour().is_valkey() {
        assert_eq!(subscriber.call(&repeat), Reply::Nil);
    } else {
        subscriber.send(&repeat);
        eventually("both wait", || waiters_of(&mut alice, "door") == 2);
    }
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("PTTL door") == -1, !server.flavour().is_valkey(), "the longest lease of all who wait");
}
