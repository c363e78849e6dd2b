//! The mutex: taking it, contention, the same token again, giving it up, and what stands in the keyspace meanwhile.

use support::{Client, Protocol, Reply, Server, Setup, Waiter, eventually, field, held_with_a_waiter, remaining_ms};

/// Any bytes: a line break, a NUL and what is not UTF-8.
const BINARY: &[u8] = b"\x00\r\n\xff\xfe $-1 \x00";

#[test]
fn a_free_lock_is_taken_and_is_a_plain_string() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("TYPE door"), "string");
    assert_eq!(alice.run("GET door"), "alice");
    assert_eq!(alice.pttl("door"), -1, "no lease option, no lease");
    assert_eq!(alice.run("DBSIZE"), 1, "nothing else is written");
}

#[test]
fn the_lease_is_the_ttl_of_the_key() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let left = remaining_ms(&mut alice, "door");
    assert!((29_000..=30_000).contains(&left), "PX 30000 gave {left}");
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice EX 30"), 1);
    let left = remaining_ms(&mut alice, "gate");
    assert!((29_000..=30_000).contains(&left), "EX 30 gave {left}");
}

#[test]
fn contention_answers_nil_and_changes_nothing() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    for attempt in ["", "PX 90000", "NX", "EX 90 NX"] {
        let reply = bob.run(&format!("LOCK.ACQUIRE door bob {attempt}"));
        assert_eq!(reply, Reply::Nil, "{attempt}");
    }
    assert_eq!(alice.run("GET door"), "alice");
    assert_eq!(alice.expires_at("door"), end);
}

#[test]
fn the_same_token_again_is_success_and_still_one_hold() {
    let server = Server::start();
    let (mut alice, mut again) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(again.run("LOCK.ACQUIRE door alice"), 1, "the token counts");
    assert_eq!(field(&mut alice, "door", "holds"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("EXISTS door"), 0);
}

#[test]
fn nx_is_strict_even_for_the_holders_own_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000 NX"), 1);
    let end = alice.expires_at("door");
    let strict = alice.run("LOCK.ACQUIRE door alice NX PX 90000");
    assert_eq!(strict, Reply::Nil);
    assert_eq!(alice.expires_at("door"), end, "nil renews nothing");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice NX"), 1);
}

#[test]
fn acquiring_again_only_ever_lengthens_the_lease() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 1000"), 1);
    assert_eq!(alice.expires_at("door"), end, "a shorter lease");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.expires_at("door"), end, "no lease option");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 90000"), 1);
    let left = remaining_ms(&mut alice, "door");
    assert!((89_000..=90_000).contains(&left), "longer gave {left}");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice EX 120"), 1);
    let left = remaining_ms(&mut alice, "door");
    assert!((119_000..=120_000).contains(&left), "EX gave {left}");
}

#[test]
fn a_lock_without_a_lease_gets_none_by_acquiring_again() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    assert_eq!(alice.pttl("door"), -1);
}

#[test]
fn release_frees_the_lock_for_the_next() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("EXISTS door"), 0);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob"), 1);
}

#[test]
fn release_may_come_from_any_connection_that_knows_the_token() {
    let server = Server::start();
    let (mut alice, mut helper) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(helper.run("LOCK.RELEASE door alice"), 0);
}

#[test]
fn releasing_a_mutex_with_a_lease_option_just_frees_it() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 1000"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice PX 30000"), 0);
    assert_eq!(alice.run("EXISTS door"), 0);
}

#[test]
fn releasing_what_nobody_holds_is_notheld() {
    let server = Server::start();
    let mut alice = server.client();
    let never = alice.run("LOCK.RELEASE door alice");
    assert_eq!(never.code(), "NOTHELD", "never taken");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    let twice = alice.run("LOCK.RELEASE door alice");
    assert_eq!(twice.code(), "NOTHELD", "already released");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 20"), 1);
    eventually("the lease ends", || alice.pttl("door") == -2);
    let late = alice.run("LOCK.RELEASE door alice");
    assert_eq!(late.code(), "NOTHELD", "expired");
}

#[test]
fn releasing_what_somebody_else_holds_is_notowner_and_changes_nothing() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    for token in ["bob", "Alice", "alice2", "alic", "PX"] {
        let reply = alice.run(&format!("LOCK.RELEASE door {token}"));
        assert_eq!(reply.code(), "NOTOWNER", "{token}");
    }
    let renewing = alice.run("LOCK.RELEASE door bob PX 90000");
    assert_eq!(renewing.code(), "NOTOWNER");
    assert_eq!(alice.run("GET door"), "alice");
    assert_eq!(alice.expires_at("door"), end);
}

#[test]
fn a_lock_whose_lease_has_ended_is_free() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30"), 1);
    let end = alice.expires_at("door");
    eventually("bob gets the lock", || bob.run("LOCK.ACQUIRE door bob") == 1);
    assert!(support::now_ms() >= end, "not before the lease has ended");
    assert_eq!(bob.run("GET door"), "bob");
    assert_eq!(bob.pttl("door"), -1, "nothing remains of the old lease");
}

#[test]
fn a_key_that_another_client_library_has_set_is_a_mutex() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    alice.ok("SET door alice NX PX 30000");
    assert_eq!(bob.run("LOCK.ACQUIRE door bob"), Reply::Nil);
    assert_eq!(bob.run("LOCK.RELEASE door bob").code(), "NOTOWNER");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
}

#[test]
fn every_encoding_of_a_string_holds_a_token() {
    let server = Server::start();
    let mut alice = server.client();
    let long = "x".repeat(200);
    for token in ["12345", "-7", "0", long.as_str()] {
        alice.ok(&format!("SET door {token}"));
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {token}")), 1);
        assert_eq!(alice.run("LOCK.ACQUIRE door other"), Reply::Nil);
        assert_eq!(alice.run(&format!("LOCK.RELEASE door {token}")), 0);
        assert_eq!(alice.run(&format!("LOCK.ACQUIRE door {token}")), 1);
        assert_eq!(alice.run("GET door"), token);
        assert_eq!(alice.run(&format!("LOCK.RELEASE door {token}")), 0);
    }
    assert_eq!(alice.run("APPEND door half"), 4);
    assert_eq!(alice.run("APPEND door token"), 9);
    assert_eq!(alice.run("LOCK.RELEASE door halftoken"), 0);
}

#[test]
fn a_value_that_cannot_be_a_token_is_somebody_elses_lock() {
    let server = Server::start();
    let mut alice = server.client();
    for value in [Vec::new(), vec![b'x'; 1025]] {
        alice.call(&[b"SET".as_slice(), b"door", &value]);
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), Reply::Nil);
        assert_eq!(alice.run("LOCK.RELEASE door alice").code(), "NOTOWNER");
        assert_eq!(alice.run("GET door"), Reply::Text(value));
        assert_eq!(alice.run("DEL door"), 1);
    }
}

#[test]
fn keys_and_tokens_are_any_bytes() {
    let server = Server::start();
    let mut alice = server.client();
    for key in [b"door".as_slice(), BINARY, b""] {
        for token in [b"t".as_slice(), BINARY, &[0xF0; 1024]] {
            assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), key, token]), 1);
            assert_eq!(alice.call(&[b"GET".as_slice(), key]), Reply::Text(token.to_vec()));
            assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), key, b"other"]), Reply::Nil);
            assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), key, token]), 1);
            assert_eq!(alice.call(&[b"LOCK.RELEASE".as_slice(), key, token]), 0);
        }
    }
    assert_eq!(alice.run("DBSIZE"), 0);
}

/// What LOCK.INFO, GET and PTTL say of a mutex on `door`.
#[track_caller]
fn assert_held(client: &mut Client, token: &[u8], lease_ms: Option<i64>) {
    assert_eq!(field(client, "door", "owner"), Reply::Text(token.to_vec()));
    assert_eq!(client.run("GET door"), Reply::Text(token.to_vec()));
    match lease_ms {
        Some(ms) => assert!((1..=ms).contains(&remaining_ms(client, "door"))),
        None => assert_eq!(client.pttl("door"), -1),
    }
}

/// Servers keep short values otherwise than long ones, with the limits at 44 bytes and thereabouts.
#[test]
fn tokens_of_every_length_are_granted_handed_over_and_released() {
    let server = Server::start();
    let mut alice = server.client();
    for length in [1, 20, 43, 44, 45, 63, 64, 65, 127, 128, 1024] {
        // Digits, because the server has a form of its own for integers.
        for bytes in [[0, 0xFF, b'\n'], [b'7', b'8', b'9']] {
            let [first, second, third] = bytes.map(|byte| vec![byte; length]);
            let waits = |args: &[&[u8]]| Waiter::start_on(&server, server.client(), args);
            assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), b"door", &first, b"PX", b"60000"]), 1);
            assert_held(&mut alice, &first, Some(60_000));
            // One without a lease over one with, then the other way round.
            let mut bob = waits(&[b"LOCK.ACQUIRE", b"door", &second, b"BLOCK", b"0"]);
            let mut carol = waits(&[b"LOCK.ACQUIRE", b"door", &third, b"PX", b"90000", b"BLOCK", b"0"]);
            assert_eq!(alice.call(&[b"LOCK.RELEASE".as_slice(), b"door", &first]), 0, "{length} bytes");
            assert_eq!(bob.reply(), 1);
            assert_held(&mut alice, &second, None);
            assert_eq!(alice.call(&[b"LOCK.RELEASE".as_slice(), b"door", &first]).code(), "NOTOWNER");
            assert_eq!(alice.call(&[b"LOCK.RELEASE".as_slice(), b"door", &second]), 0, "{length} bytes");
            assert_eq!(carol.reply(), 1);
            assert_held(&mut alice, &third, Some(90_000));
            assert_eq!(alice.call(&[b"LOCK.RELEASE".as_slice(), b"door", &third]), 0, "{length} bytes");
            assert_eq!(alice.run("EXISTS door"), 0);
        }
    }
}

#[test]
fn a_token_that_is_an_option_word_is_a_token() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door PX PX 30000"), 1);
    assert_eq!(alice.run("GET door"), "PX");
    assert_eq!(alice.run("LOCK.ACQUIRE NX NX NX"), 1);
    assert_eq!(alice.run("LOCK.RELEASE NX NX"), 0);
}

#[test]
fn option_words_come_in_any_case_and_order() {
    let server = Server::start();
    let mut alice = server.client();
    for options in ["px 30000 nx block 5", "nX bLoCk 5 Px 30000", "BLOCK 5 NX EX 30", "block 5 ex 30"] {
        assert_eq!(alice.run(&format!("lock.acquire door alice {options}")), 1);
        let left = remaining_ms(&mut alice, "door");
        assert!((29_000..=30_000).contains(&left), "{options}: {left}");
        assert_eq!(alice.run("lock.release door alice"), 0);
    }
}

#[test]
fn databases_are_apart() {
    let server = Server::start();
    let (mut zero, mut one) = (server.client(), server.client_in(1));
    assert_eq!(zero.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(one.run("LOCK.RELEASE door alice").code(), "NOTHELD");
    assert_eq!(one.run("LOCK.ACQUIRE door bob"), 1);
    assert_eq!(zero.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(one.run("GET door"), "bob");
}

#[test]
fn nil_is_a_null_bulk_string_in_resp2_and_a_null_in_resp3() {
    let server = Server::start();
    assert_eq!(server.client().run("LOCK.ACQUIRE door alice"), 1);
    for (protocol, nil) in [(Protocol::Resp2, "$-1\r\n"), (Protocol::Resp3, "_\r\n")] {
        for options in ["", " BLOCK 10"] {
            let line = format!("LOCK.ACQUIRE door bob{options}");
            assert_eq!(server.on_the_wire(protocol, &line), nil, "{protocol:?} {line}");
            let line = format!("LOCK.REENTER door bob{options}");
            assert_eq!(server.on_the_wire(protocol, &line), nil, "{protocol:?} {line}");
        }
    }
    assert_eq!(server.on_the_wire(Protocol::Resp3, "LOCK.RELEASE door alice"), ":0\r\n");
}

#[test]
fn a_watched_lock_aborts_a_transaction_only_when_it_really_changed() {
    let server = Server::start();
    let (mut watcher, mut alice) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    for (line, changes) in [
        ("LOCK.ACQUIRE door bob", false),
        ("LOCK.ACQUIRE door alice", false),
        ("LOCK.ACQUIRE door alice PX 10", false),
        ("LOCK.RELEASE door bob", false),
        ("LOCK.EXTEND door bob PX 10", false),
        ("LOCK.REENTER door alice", false),
        ("LOCK.INFO door", false),
        ("LOCK.ACQUIRE door alice PX 90000", true),
        ("LOCK.EXTEND door alice PX 80000", true),
        ("LOCK.RELEASE door alice", true),
        ("LOCK.REENTER door alice", true),
    ] {
        watcher.ok("WATCH door");
        alice.run(line);
        watcher.ok("MULTI");
        assert_eq!(watcher.run("PING"), "QUEUED");
        let aborted = watcher.run("EXEC") == Reply::Nil;
        assert_eq!(aborted, changes, "{line}");
    }
}

#[test]
fn a_watched_lock_aborts_a_transaction_when_it_passed_to_a_waiter() {
    for free in ["LOCK.RELEASE door alice", "PEXPIRE door 40", "DEL door"] {
        let (_server, mut alice, mut bob) = held_with_a_waiter(&Setup::new());
        alice.ok("WATCH door");
        alice.run(free);
        assert_eq!(bob.reply(), 1);
        alice.ok("MULTI");
        assert_eq!(alice.run("PING"), "QUEUED");
        assert_eq!(alice.run("EXEC"), Reply::Nil, "{free}");
    }
}

#[test]
fn a_full_server_refuses_new_locks_and_still_releases() {
    let server = Setup::new().config("maxmemory-policy noeviction").start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    alice.ok("CONFIG SET maxmemory 1");
    assert_eq!(alice.run("LOCK.ACQUIRE gate alice").code(), "OOM");
    assert_eq!(alice.run("LOCK.REENTER gate alice").code(), "OOM");
    assert_eq!(alice.run("LOCK.EXTEND door alice PX 40000"), 40_000);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
}

#[test]
fn works_inside_a_transaction_and_a_script() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("MULTI");
    for line in [
        "LOCK.ACQUIRE door alice PX 30000",
        "LOCK.ACQUIRE door bob",
        "LOCK.EXTEND door alice PX 60000",
        "LOCK.RELEASE door bob",
        "LOCK.RELEASE door alice",
    ] {
        assert_eq!(alice.run(line), "QUEUED");
    }
    let replies = alice.run("EXEC");
    match replies.items() {
        [acquired, nil, extended, refused, released] => {
            assert_eq!(*acquired, 1);
            assert_eq!(*nil, Reply::Nil);
            assert_eq!(*extended, 60_000);
            assert_eq!(refused.code(), "NOTOWNER");
            assert_eq!(*released, 0);
        }
        other => panic!("five replies, not {other:?}"),
    }
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], 'PX', 30000)";
    assert_eq!(alice.call(&["EVAL", script, "1", "door", "carol"]), 1);
    assert_eq!(alice.run("GET door"), "carol");
}
