//! The re-entrant lock: holds up and down, its Hash layout, and how it and the mutex exclude each other.

use std::thread;
use std::time::Duration;

use support::{Client, Reply, Server, Waiter, eventually, field, remaining_ms};

/// Counts that are no hold count: the layout is the plain decimal number of at least 1.
const NO_COUNTS: [&str; 12] =
    ["0", "-1", "abc", "01", "+1", " 1", "1 ", "1.0", "", "1e3", "9223372036854775808", "99999999999999999999999"];

#[track_caller]
fn hash_of(client: &mut Client, key: &str) -> Vec<(String, Reply)> {
    client.run(&format!("HGETALL {key}")).pairs()
}

fn one_field(owner: &str, count: &str) -> Vec<(String, Reply)> {
    vec![(owner.to_owned(), Reply::text(count))]
}

#[test]
fn every_further_hold_is_counted_up() {
    let server = Server::start();
    let mut alice = server.client();
    for holds in 1..=12 {
        assert_eq!(alice.run("LOCK.REENTER door alice"), holds);
    }
    assert_eq!(field(&mut alice, "door", "holds"), 12);
}

#[test]
fn the_lock_is_a_hash_of_one_field_with_the_decimal_count() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    assert_eq!(alice.run("TYPE door"), "hash");
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "1"));
    assert_eq!(alice.pttl("door"), -1, "no lease option, no lease");
    for _ in 2..=10 {
        alice.run("LOCK.REENTER door alice");
    }
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "10"));
    assert_eq!(alice.run("DBSIZE"), 1, "nothing else is written");
}

#[test]
fn release_counts_down_and_the_last_one_frees() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    for holds in 1..=3 {
        assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), holds);
    }
    let end = alice.expires_at("door");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 2);
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "2"));
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 1);
    assert_eq!(bob.run("LOCK.REENTER door bob"), Reply::Nil);
    assert_eq!(alice.expires_at("door"), end, "the lease stays as it is");
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(alice.run("EXISTS door"), 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice").code(), "NOTHELD");
    assert_eq!(bob.run("LOCK.REENTER door bob"), 1);
}

#[test]
fn another_owner_gets_nil_and_changes_nothing() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    for attempt in ["", "PX 90000", "EX 90"] {
        let reply = bob.run(&format!("LOCK.REENTER door bob {attempt}"));
        assert_eq!(reply, Reply::Nil, "{attempt}");
    }
    assert_eq!(bob.run("LOCK.RELEASE door bob").code(), "NOTOWNER");
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "1"));
    assert_eq!(alice.expires_at("door"), end);
}

#[test]
fn a_mutex_and_a_reentrant_lock_exclude_each_other() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(client.run("LOCK.REENTER door bob"), Reply::Nil);
    assert_eq!(client.run("LOCK.REENTER door alice"), Reply::Nil);
    assert_eq!(client.run("TYPE door"), "string");
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);

    assert_eq!(client.run("LOCK.REENTER door alice"), 1);
    assert_eq!(client.run("LOCK.ACQUIRE door bob"), Reply::Nil);
    assert_eq!(client.run("LOCK.ACQUIRE door alice"), Reply::Nil);
    assert_eq!(hash_of(&mut client, "door"), one_field("alice", "1"));
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
}

#[test]
fn a_hold_given_up_or_added_only_ever_lengthens_the_lease() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), 1);
    let end = alice.expires_at("door");
    assert_eq!(alice.run("LOCK.REENTER door alice PX 1000"), 2);
    assert_eq!(alice.run("LOCK.REENTER door alice"), 3);
    assert_eq!(alice.run("LOCK.RELEASE door alice PX 1000"), 2);
    assert_eq!(alice.expires_at("door"), end, "shorter leases and none");

    assert_eq!(alice.run("LOCK.REENTER door alice PX 60000"), 3);
    let left = remaining_ms(&mut alice, "door");
    assert!((59_000..=60_000).contains(&left), "re-entry gave {left}");
    assert_eq!(alice.run("LOCK.RELEASE door alice EX 90"), 2);
    let left = remaining_ms(&mut alice, "door");
    assert!((89_000..=90_000).contains(&left), "release gave {left}");
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "2"));
}

#[test]
fn a_lock_without_a_lease_gets_none_by_a_further_hold_or_a_release() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30000"), 2);
    assert_eq!(alice.pttl("door"), -1);
    assert_eq!(alice.run("LOCK.RELEASE door alice PX 30000"), 1);
    assert_eq!(alice.pttl("door"), -1);
}

#[test]
fn a_lock_whose_lease_has_ended_starts_again_at_one() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice PX 30"), 2);
    eventually("the lease ends", || alice.pttl("door") == -2);
    assert_eq!(alice.run("LOCK.REENTER door alice"), 1);
    assert_eq!(alice.pttl("door"), -1, "nothing remains of the old lease");
}

#[test]
fn a_hash_that_another_client_library_has_set_is_held() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    assert_eq!(alice.run("HSET door alice 2"), 1);
    assert_eq!(bob.run("LOCK.REENTER door bob"), Reply::Nil);
    assert_eq!(alice.run("LOCK.REENTER door alice"), 3);
    assert_eq!(alice.run("HINCRBY door alice 1"), 4);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 3);
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", "3"));
}

#[test]
fn an_owner_too_long_for_a_listpack_and_one_of_any_bytes_hold_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    let binary = b"\x00\r\n\xff".as_slice();
    for owner in [[b'o'; 65].as_slice(), &[b'o'; 1024], binary] {
        for holds in 1..=3 {
            assert_eq!(client.call(&[b"LOCK.REENTER".as_slice(), b"door", owner]), holds);
        }
        let count = client.call(&[b"HGET".as_slice(), b"door", owner]);
        assert_eq!(count, "3");
        assert_eq!(client.run("LOCK.REENTER door other"), Reply::Nil);
        for holds in [2, 1, 0] {
            assert_eq!(client.call(&[b"LOCK.RELEASE".as_slice(), b"door", owner]), holds);
        }
        assert_eq!(client.run("EXISTS door"), 0);
    }
}

#[test]
fn a_hash_stored_as_a_table_is_read_like_a_listpack() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("CONFIG SET hash-max-listpack-entries 0");
    assert_eq!(alice.run("HSET door alice 1"), 1);
    assert_eq!(alice.run("OBJECT ENCODING door"), "hashtable");
    assert_eq!(alice.run("LOCK.REENTER door alice"), 2);
    assert_eq!(alice.run("HSET door bob 1"), 1);
    assert_eq!(alice.run("LOCK.REENTER door alice").code(), "WRONGTYPE");
    assert_eq!(alice.run("HDEL door bob"), 1);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 1);
}

/// The time-out of the only field of a lock, which is no lease of ours, but frees it all the same. The server is left
/// alone meanwhile: a command would have it do what it has put off.
#[test]
fn a_hold_whose_field_lapses_goes_to_who_waits() {
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        let server = Server::start();
        let mut alice = server.client();
        if !server.flavour().has_field_expiry() {
            return;
        }
        assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
        let mut bob = Waiter::start(&server, &format!("{take} door bob BLOCK 0"));
        assert_eq!(alice.run("HPEXPIRE door 100 FIELDS 1 alice").items(), [Reply::Int(1)]);
        assert_eq!(bob.reply(), 1, "{take}");
        assert_eq!(field(&mut alice, "door", "owner"), "bob");
        assert_eq!(alice.pttl("door"), -1, "nothing is left of the lease of before");
        assert_eq!(alice.run("LOCK.RELEASE door alice").code(), "NOTOWNER");
    }
}

#[test]
fn a_hold_whose_field_has_lapsed_is_no_ones() {
    let server = Server::start();
    let mut alice = server.client();
    if !server.flavour().has_field_expiry() {
        return;
    }
    for line in [
        "LOCK.REENTER door alice",
        "LOCK.RELEASE door alice",
        "LOCK.EXTEND door alice PX 9000",
        "LOCK.REENTER door bob",
    ] {
        assert_eq!(alice.run("LOCK.REENTER door alice PX 600000"), 1);
        assert_eq!(alice.run("HPEXPIRE door 1 FIELDS 1 alice").items(), [Reply::Int(1)]);
        thread::sleep(Duration::from_millis(5));
        // Until the server drops the field the Hash is no lock; then it is a free one.
        let reply = alice.run(line);
        let granted = line.starts_with("LOCK.REENTER") && reply == 1;
        assert!(granted || ["WRONGTYPE", "NOTHELD"].contains(&reply.code()), "{line}: {reply:?}");
        alice.run("DEL door");
    }
}

/// Every command on a Hash of another layout is WRONGTYPE and leaves the key alone.
#[track_caller]
fn refuses_layout(client: &mut Client, fields: &[&str]) {
    client.run("DEL door");
    let mut words = vec!["HSET", "door"];
    words.extend(fields);
    client.call(&words);
    client.run("PEXPIRE door 90000");
    let before = (client.run("DUMP door"), client.expires_at("door"));
    for line in [
        "LOCK.ACQUIRE door alice",
        "LOCK.ACQUIRE door alice NX PX 1000 BLOCK 20",
        "LOCK.REENTER door alice",
        "LOCK.REENTER door alice EX 1 BLOCK 20",
        "LOCK.RELEASE door alice",
        "LOCK.EXTEND door alice PX 1000",
        "LOCK.INFO door",
    ] {
        let reply = client.run(line);
        assert!(reply.is_error(), "{line} on {fields:?}: {reply:?}");
        assert_eq!(
            reply.error(),
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "{line} on {fields:?}"
        );
    }
    let after = (client.run("DUMP door"), client.expires_at("door"));
    assert_eq!(before, after, "{fields:?}");
}

#[test]
fn a_hash_of_two_fields_is_wrongtype() {
    let server = Server::start();
    let mut client = server.client();
    refuses_layout(&mut client, &["alice", "1", "bob", "1"]);
    refuses_layout(&mut client, &["alice", "1", "mode", "x"]);
}

#[test]
fn a_hash_whose_value_is_no_count_is_wrongtype() {
    let server = Server::start();
    let mut client = server.client();
    for count in NO_COUNTS {
        refuses_layout(&mut client, &["alice", count]);
    }
}

#[test]
fn the_count_never_overflows() {
    let server = Server::start();
    let mut alice = server.client();
    let most = i64::MAX.to_string();
    alice.run(&format!("HSET door alice {most}"));
    let reply = alice.run("LOCK.REENTER door alice");
    assert!(reply.is_error(), "no hold above the largest: {reply:?}");
    assert_eq!(hash_of(&mut alice, "door"), one_field("alice", &most));
}
