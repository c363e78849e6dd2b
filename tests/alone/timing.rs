//! How punctual the server is: the end of a wait and the end of a lease, to about a millisecond. Each figure is the
//! median of many rounds, and the best of a few batches, so that a busy machine does not fail a punctual module. A
//! module that waits for the server's own clock tick is tens of milliseconds late in every batch.

use std::time::{Duration, Instant};

use support::{Client, Reply, Server, Waiter, Way, now_us};

use super::alone;

const BATCHES: usize = 4;

/// Microseconds late, in rising order.
struct Lateness(Vec<i64>);

impl Lateness {
    fn of(mut rounds: Vec<i64>) -> Self {
        rounds.sort_unstable();
        Self(rounds)
    }

    fn earliest(&self) -> i64 {
        *self.0.first().expect("a round")
    }

    fn median(&self) -> i64 {
        *self.0.get(self.0.len() / 2).expect("a round")
    }
}

/// Runs batches until one has a median within `limit_us`; no round may be early by more than `early_us`.
#[track_caller]
fn is_punctual(what: &str, early_us: i64, limit_us: i64, mut batch: impl FnMut() -> Vec<i64>) {
    let mut medians = Vec::new();
    for _ in 0..BATCHES {
        let lateness = Lateness::of(batch());
        let earliest = lateness.earliest();
        assert!(earliest >= -early_us, "{what}: {earliest} us late, which is early");
        medians.push(lateness.median());
        if lateness.median() <= limit_us {
            return;
        }
    }
    panic!("{what}: medians of {medians:?} us late in {BATCHES} batches, allowed are {limit_us}");
}

/// A wait that ends by time-out: microseconds between BLOCK's end and the answer.
fn wait_once(client: &mut Client, take: &str, block_ms: u64) -> i64 {
    let asked = Instant::now();
    let reply = client.run(&format!("{take} door other BLOCK {block_ms}"));
    let waited = asked.elapsed();
    assert_eq!(reply, Reply::Nil);
    i64::try_from(waited.as_micros()).unwrap() - i64::try_from(block_ms * 1000).unwrap()
}

#[test]
fn a_wait_ends_on_time_and_never_early() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door holder"), 1);
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        // The server counts in whole milliseconds, so a wait may look short by less than one.
        is_punctual(take, 1000, 2000, || (0..20).map(|round| wait_once(&mut client, take, 11 + round % 13)).collect());
    }
}

#[test]
fn a_wait_ends_on_time_on_a_lock_that_has_a_lease() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(client.run("LOCK.ACQUIRE door holder PX 60000"), 1);
    is_punctual("BLOCK", 1000, 2000, || {
        (0..20).map(|round| wait_once(&mut client, "LOCK.ACQUIRE", 11 + round % 13)).collect()
    });
}

/// A hand-over at the end of a lease: microseconds between the key's end and the waiter's answer.
fn lease_ends_once(way: Way, server: &Server, client: &mut Client, take: &str, lease_ms: u64) -> i64 {
    assert_eq!(client.run(&format!("{take} door holder PX {lease_ms}")), 1);
    let end_ms = client.expires_at("door");
    let mut waiter = way.send(server, &format!("{take} door waiter BLOCK 0"));
    assert_eq!(waiter.reply(), 1);
    let granted_us = now_us();
    assert_eq!(client.run("LOCK.RELEASE door waiter"), 0);
    granted_us - end_ms * 1000
}

#[test]
fn the_end_of_a_lease_serves_the_next_within_two_milliseconds() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    for (take, way) in [("LOCK.ACQUIRE", Way::Blocked), ("LOCK.REENTER", Way::Blocked), ("LOCK.ACQUIRE", Way::Notified)]
    {
        is_punctual(take, 0, 2000, || {
            (0..20).map(|round| lease_ends_once(way, &server, &mut client, take, 15 + round % 11)).collect()
        });
    }
}

#[test]
fn many_other_keys_with_a_lease_do_not_delay_the_hand_over() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    let script = "for i = 1, 100000 do redis.call('SET', 'other:' .. i, 'x', 'PX', 3600000 + i) end return 1";
    assert_eq!(client.call(&["EVAL", script, "0"]), 1);
    is_punctual("among 100,000 volatile keys", 0, 2000, || {
        let mut once =
            |round: u64| lease_ends_once(Way::Blocked, &server, &mut client, "LOCK.ACQUIRE", 15 + round % 11);
        (0..20).map(&mut once).collect()
    });
}

#[test]
fn a_share_that_ends_among_ten_thousand_makes_room_on_time() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    let script = "for i = 1, 10000 do redis.call('LOCK.SHARE', KEYS[1], 'other:' .. i, 'PX', 3600000 + i) end return 1";
    assert_eq!(client.call(&["EVAL", script, "1", "door"]), 1);
    is_punctual("a share among 10,000", 0, 2000, || (0..20).map(|_| share_ends_once(&server, &mut client)).collect());
}

/// How late the next permit is granted when the lease of one share ends.
fn share_ends_once(server: &Server, client: &mut Client) -> i64 {
    let waiting = server.client();
    assert_eq!(client.run("LOCK.SHARE door short PX 25"), 1);
    let end_ms: i64 = client.run("ZSCORE door short").string().parse().expect("the end of a lease");
    let line = "LOCK.SHARE door waiter LIMIT 10001 BLOCK 0";
    let mut waiter = Waiter::send_on(server, waiting, &support::bytes_of(line));
    assert_eq!(waiter.reply_within(Duration::from_secs(5)), 1);
    let granted_us = now_us();
    assert_eq!(client.run("LOCK.RELEASE door waiter"), 0);
    granted_us - end_ms * 1000
}

#[test]
fn a_lease_that_ends_a_millisecond_after_another_is_not_late_for_that() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    is_punctual("right after another", 0, 2000, || {
        (0..20).map(|_| second_lease_ends_once(&server, &mut client)).collect()
    });
}

/// How late the second of two locks is granted, whose leases end one after the other.
fn second_lease_ends_once(server: &Server, client: &mut Client) -> i64 {
    let end_ms = now_us() / 1000 + 25;
    let mut waiters = [("door", end_ms), ("gate", end_ms + 1)].map(|(key, end_ms)| {
        client.ok(&format!("SET {key} holder PXAT {end_ms}"));
        let line = format!("LOCK.ACQUIRE {key} waiter BLOCK 0");
        Waiter::send(server, &line)
    });
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply_within(Duration::from_secs(5)), 1));
    let granted_us = now_us();
    assert_eq!(client.run("DEL door gate"), 2);
    granted_us - (end_ms + 1) * 1000
}

#[test]
fn a_renewed_lease_ends_when_it_then_ends() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    is_punctual("after EXTEND and PEXPIRE", 0, 2000, || {
        (0..20).map(|round| renewed_lease_ends_once(&server, &mut client, round % 2 == 0)).collect()
    });
}

fn renewed_lease_ends_once(server: &Server, client: &mut Client, shorten: bool) -> i64 {
    let (first, then) = if shorten { (60_000, 15) } else { (100, 115) };
    let waiting = server.client();
    assert_eq!(client.run(&format!("LOCK.ACQUIRE door holder PX {first}")), 1);
    let line = "LOCK.ACQUIRE door waiter BLOCK 0";
    let mut waiter = Waiter::send_on(server, waiting, &support::bytes_of(line));
    let renewed = if shorten {
        client.run(&format!("PEXPIRE door {then}"))
    } else {
        client.run(&format!("LOCK.EXTEND door holder PX {then}"))
    };
    assert!(!renewed.is_error(), "{renewed:?}");
    let end_ms = client.expires_at("door");
    assert_eq!(waiter.reply_within(Duration::from_secs(5)), 1);
    let granted_us = now_us();
    assert_eq!(client.run("LOCK.RELEASE door waiter"), 0);
    granted_us - end_ms * 1000
}

#[test]
fn a_release_serves_the_next_at_once() {
    let _alone = alone();
    let server = Server::start();
    let mut client = server.client();
    let mut once = |way: Way| {
        assert_eq!(client.run("LOCK.ACQUIRE door holder"), 1);
        let mut waiter = way.start(&server, "LOCK.ACQUIRE door waiter BLOCK 0");
        let released_us = now_us();
        assert_eq!(client.run("LOCK.RELEASE door holder"), 0);
        assert_eq!(waiter.reply(), 1);
        let granted_us = now_us();
        assert_eq!(client.run("LOCK.RELEASE door waiter"), 0);
        granted_us - released_us
    };
    for way in Way::ALL {
        is_punctual(&format!("RELEASE, {way:?}"), 0, 1000, || (0..20).map(|_| once(way)).collect());
    }
}

/// Pipelined behind the end of another wait, where Redis 7.0 has already decided how long to sleep.
#[test]
fn a_wait_that_begins_while_the_server_is_about_to_sleep_ends_on_time() {
    let _alone = alone();
    let server = Server::start();
    let mut control = server.client();
    assert_eq!(control.run("LOCK.ACQUIRE door holder"), 1);
    is_punctual("behind BLPOP", 1000, 3000, || {
        (0..15)
            .map(|_| {
                let mut client = server.client();
                client.send_together(&["BLPOP list 0", "LOCK.ACQUIRE door other BLOCK 20"]);
                support::eventually("BLPOP waits", || {
                    control.info("clients", "blocked_clients").as_deref() == Some("1")
                });
                let asked = Instant::now();
                assert_eq!(control.run("RPUSH list x"), 1);
                assert_eq!(client.receive().items().len(), 2);
                assert_eq!(client.receive(), Reply::Nil);
                i64::try_from(asked.elapsed().as_micros()).unwrap() - 20_000
            })
            .collect()
    });
}
