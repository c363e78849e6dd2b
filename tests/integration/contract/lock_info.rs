//! LOCK.INFO, LOCK.WAITERS, and the counters of INFO.

use support::{Client, Protocol, Reply, Server, Waiter, bytes_of, eventually, info_lock, waiters_of};

const INFO_FIELDS: [&str; 7] = ["state", "owner", "holds", "lease-ms", "waiters", "session", "recovery-ms"];
const WAITER_FIELDS: [&str; 7] = ["token", "kind", "limit", "waited-ms", "remaining-ms", "client-id", "channel"];

fn names(reply: &Reply) -> Vec<String> {
    reply.pairs().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn info_of_a_free_lock() {
    let server = Server::start();
    let info = server.client().run("LOCK.INFO door");
    assert_eq!(info.get("state"), "free");
    assert_eq!(info.get("owner"), Reply::Nil);
    assert_eq!(info.get("holds"), 0);
    assert_eq!(info.get("lease-ms"), -1);
    assert_eq!(info.get("waiters"), 0);
    assert_eq!(info.get("session"), Reply::List(vec![]));
}

#[test]
fn info_of_a_mutex_and_of_a_reentrant_lock() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 30000"), 1);
    let info = alice.run("LOCK.INFO door");
    assert_eq!(info.get("state"), "mutex");
    assert_eq!(info.get("owner"), "alice");
    assert_eq!(info.get("holds"), 1);
    assert!((29_000..=30_000).contains(&info.get("lease-ms").int()));

    assert_eq!(alice.run("LOCK.REENTER gate bob"), 1);
    assert_eq!(alice.run("LOCK.REENTER gate bob"), 2);
    let _carol = Waiter::start(&server, "LOCK.ACQUIRE gate carol BLOCK 0");
    let info = alice.run("LOCK.INFO gate");
    assert_eq!(info.get("state"), "reentrant");
    assert_eq!(info.get("owner"), "bob");
    assert_eq!(info.get("holds"), 2);
    assert_eq!(info.get("lease-ms"), -1);
    assert_eq!(info.get("waiters"), 1);
}

#[test]
fn info_of_a_lock_whose_lease_has_ended_is_free() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 20"), 1);
    eventually("the lease ends", || alice.run("LOCK.INFO door").get("state") == "free");
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), Reply::Nil);
}

#[test]
fn maps_are_maps_in_resp3_and_flat_arrays_in_resp2() {
    let server = Server::start();
    let mut two = server.client();
    let mut three = server.client_speaking(Protocol::Resp3);
    assert_eq!(two.run("LOCK.ACQUIRE door alice"), 1);
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
    let (flat, map) = (two.run("LOCK.INFO door"), three.run("LOCK.INFO door"));
    assert!(matches!(flat, Reply::List(_)), "{flat:?}");
    assert!(matches!(map, Reply::Map(_)), "{map:?}");
    for info in [&flat, &map] {
        assert_eq!(names(info), INFO_FIELDS);
    }
    let (flat, map) = (two.run("LOCK.WAITERS door"), three.run("LOCK.WAITERS door"));
    for (waiters, is_map) in [(&flat, false), (&map, true)] {
        let [waiter] = waiters.items() else { panic!("one waiter: {waiters:?}") };
        assert_eq!(matches!(waiter, Reply::Map(_)), is_map, "{waiter:?}");
        assert_eq!(names(waiter), WAITER_FIELDS);
    }
}

#[test]
fn waiters_are_listed_first_in_line_first() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.WAITERS door"), Reply::List(vec![]));
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    assert_eq!(alice.run("LOCK.WAITERS door"), Reply::List(vec![]));
    let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 60000");
    let carol = Waiter::start(&server, "LOCK.REENTER door carol BLOCK 0");
    let list = alice.run("LOCK.WAITERS door");
    let [first, second] = list.items() else { panic!("two waiters: {list:?}") };
    assert_eq!(first.get("token"), "bob");
    assert_eq!(first.get("kind"), "mutex");
    assert_eq!(first.get("client-id"), bob.id());
    assert!((50_000..=60_000).contains(&first.get("remaining-ms").int()), "{first:?}");
    assert_eq!(second.get("token"), "carol");
    assert_eq!(second.get("kind"), "reentrant");
    assert_eq!(second.get("client-id"), carol.id());
    assert_eq!(second.get("remaining-ms"), -1, "BLOCK 0 has no end");
    eventually("waiting counts up", || {
        let list = alice.run("LOCK.WAITERS door");
        list.items().iter().all(|waiter| waiter.get("waited-ms").int() >= 20)
    });
    let one = alice.run("LOCK.WAITERS door COUNT 1");
    assert_eq!(one.items().len(), 1);
    assert_eq!(one.items()[0].get("token"), "bob");
}

#[test]
fn a_hundred_waiters_are_listed_unless_count_says_otherwise() {
    const WAITERS: i64 = 103;
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let _clients: Vec<Client> = (0..WAITERS)
        .map(|number| {
            let mut client = server.client();
            client.send(&bytes_of(&format!("LOCK.ACQUIRE door token-{number:03} BLOCK 0")));
            eventually("it waits", || waiters_of(&mut alice, "door") == number + 1);
            client
        })
        .collect();
    for (count, listed) in [("", 100), ("COUNT 7", 7), ("COUNT 1000", WAITERS), ("count 103", WAITERS)] {
        let list = alice.run(&format!("LOCK.WAITERS door {count}"));
        let tokens: Vec<String> = list.items().iter().map(|waiter| waiter.get("token").string()).collect();
        let expected: Vec<String> = (0..listed).map(|number| format!("token-{number:03}")).collect();
        assert_eq!(tokens, expected, "{count}");
    }
}

#[test]
fn tokens_of_any_bytes_are_shown_as_they_are() {
    let server = Server::start();
    let mut alice = server.client();
    let token = b"\x00\r\n\xff".as_slice();
    let other = b"\xfe\x00".as_slice();
    assert_eq!(alice.call(&[b"LOCK.ACQUIRE".as_slice(), b"door", token]), 1);
    assert_eq!(alice.run("LOCK.INFO door").get("owner"), Reply::Text(token.to_vec()));
    let args = [b"LOCK.ACQUIRE", b"door".as_slice(), other, b"BLOCK", b"0"];
    let _waiter = Waiter::start_on(&server, server.client(), &args);
    let list = alice.run("LOCK.WAITERS door");
    assert_eq!(list.items()[0].get("token"), Reply::Text(other.to_vec()));
}

/// How much the counters of `INFO lock` rise while `act` runs.
#[track_caller]
fn rises(client: &mut Client, counters: &[&str], act: impl FnOnce(&mut Client)) -> Vec<i64> {
    let before: Vec<i64> = counters.iter().map(|name| info_lock(client, name)).collect();
    act(client);
    counters.iter().zip(before).map(|(name, before)| info_lock(client, name) - before).collect()
}

#[test]
fn info_lock_counts_slow_waits() {
    let server = Server::start();
    let mut alice = server.client();
    alice.ok("CONFIG SET lock.slowlog-ms 20");
    alice.ok("CONFIG SET lock.slowlog-max-len 1");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let wait = |client: &mut Client| {
        ["30", "30", "1"].into_iter().for_each(|ms| drop(client.run(&format!("LOCK.ACQUIRE door bob BLOCK {ms}"))));
        client.ok("LOCK.SLOWLOG RESET");
    };
    let slow = rises(&mut alice, &["slow_waits"], wait);
    assert!((2..=3).contains(&slow[0]), "{slow:?}, and only a busy machine makes the last one slow");
}

#[test]
fn info_lock_counts_grants_and_refusals() {
    let server = Server::start();
    let mut alice = server.client();
    let counters = ["granted_at_once", "resent", "not_owner_errors"];
    let take = |client: &mut Client| {
        client.run("LOCK.ACQUIRE door alice");
        client.run("LOCK.REENTER gate alice");
    };
    assert_eq!(rises(&mut alice, &counters, take), [2, 0, 0]);
    let repeat = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door alice"));
    assert_eq!(rises(&mut alice, &counters, repeat), [0, 1, 0]);
    let foreign = |client: &mut Client| {
        client.run("LOCK.RELEASE door bob");
        client.run("LOCK.EXTEND door bob PX 9");
    };
    assert_eq!(rises(&mut alice, &counters, foreign), [0, 0, 2]);
    let contended = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door bob"));
    assert_eq!(rises(&mut alice, &counters, contended), [0, 0, 0]);
}

#[test]
fn info_lock_counts_waits_by_how_they_ended() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    let counters = ["waiters", "timed_out", "cancelled", "granted_after_waiting"];
    let time_out = |client: &mut Client| drop(client.run("LOCK.ACQUIRE door bob BLOCK 5"));
    assert_eq!(rises(&mut alice, &counters, time_out), [0, 1, 0, 0]);
    let leave = |client: &mut Client| {
        drop(Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0"));
        eventually("bob has left", || waiters_of(client, "door") == 0);
    };
    assert_eq!(rises(&mut alice, &counters, leave), [0, 0, 1, 0]);
    let mut waiting = Vec::new();
    let wait = |_: &mut Client| waiting.push(Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0"));
    assert_eq!(rises(&mut alice, &counters, wait), [1, 0, 0, 0]);
    let hand_over = |client: &mut Client| drop(client.run("LOCK.RELEASE door alice"));
    assert_eq!(rises(&mut alice, &counters, hand_over), [-1, 0, 0, 1]);
}

#[test]
fn info_lock_counts_hand_overs_by_cause() {
    let server = Server::start();
    let mut alice = server.client();
    let counters = ["release", "expiry", "delete", "disconnect", "other"].map(|cause| format!("handovers_{cause}"));
    let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
    for (free, expected) in [
        ("LOCK.RELEASE door alice", [1, 0, 0, 0, 0]),
        ("PEXPIRE door 10", [0, 1, 0, 0, 0]),
        ("DEL door", [0, 0, 1, 0, 0]),
        ("UNLINK door", [0, 0, 1, 0, 0]),
        ("RENAME door elsewhere", [0, 0, 0, 0, 1]),
        ("FLUSHALL", [0, 0, 0, 0, 1]),
    ] {
        assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        let risen = rises(&mut alice, &counters, |client| {
            assert!(!client.run(free).is_error(), "{free}");
            assert_eq!(bob.reply(), 1, "{free}");
        });
        assert_eq!(risen, expected, "{free}");
        assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    }
}

#[test]
fn info_lock_counts_waits_by_their_length() {
    let server = Server::start();
    let mut alice = server.client();
    let bounds = ["1", "2", "5", "10", "50", "100", "500", "1000", "10000", "60000", "inf"];
    let counters = bounds.map(|bound| format!("waits_le_{bound}_ms"));
    let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
    let risen = rises(&mut alice, &counters, |client| {
        assert_eq!(client.run("LOCK.ACQUIRE door alice"), 1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        eventually("bob has waited for 20 ms", || {
            client.run("LOCK.WAITERS door").items().iter().all(|waiter| waiter.get("waited-ms").int() > 20)
        });
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(bob.reply(), 1);
    });
    assert_eq!(risen.first(), Some(&0), "not within a millisecond: {risen:?}");
    assert_eq!(risen[3], 0, "not within ten: {risen:?}");
    assert_eq!(risen.last(), Some(&1), "the last bucket counts all: {risen:?}");
    assert!(risen.is_sorted(), "the buckets are cumulative: {risen:?}");
}

#[test]
fn the_server_counts_lost_locks_as_errors() {
    let server = Server::start();
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice"), 1);
    for (line, code) in [
        ("LOCK.RELEASE gate alice", "NOTHELD"),
        ("LOCK.RELEASE door bob", "NOTOWNER"),
        ("LOCK.EXTEND door alice PX 9", "NOLEASE"),
    ] {
        for times in 1..=2 {
            assert_eq!(alice.run(line).code(), code);
            let count = alice.info("errorstats", &format!("errorstat_{code}"));
            assert_eq!(count, Some(format!("count={times}")), "{line}");
        }
    }
}
