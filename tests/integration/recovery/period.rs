//! What is answered in a period, and what comes of those who wait when it is over.

use std::time::Instant;

use support::parallel::for_each;
use support::replicas::{in_step, master, replica_of, replicated};
use support::sessions::session_of;
use support::{
    Aof, OBSERVATION, Reply, Server, Setup, Waiter, Way, eventually, field, info_lock, never_within, waiters_of,
};

use super::held_back::{PERIOD, SHORT_LAG, WITHOUT_END, end, has_lasted, in_a_period, remaining_ms};

/// One request of each kind, for a key and a token.
const TAKES: [&str; 3] = ["LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.SHARE"];

/// A replica that has just become a master, in a period without end, and holds what its master had: `door`, held by alice
/// as `take` says, with a long lease.
#[track_caller]
fn promoted_with(take: &str) -> Server {
    let old = master("");
    let new = replica_of(&old);
    let mut alice = old.client();
    assert_eq!(alice.run(&format!("{take} door alice PX 600000")), 1);
    replicated(&mut alice, "mark");
    let mut control = new.client();
    control.ok(&format!("CONFIG SET {WITHOUT_END}"));
    control.ok("REPLICAOF NO ONE");
    assert!(remaining_ms(&mut control) > 0);
    new
}

#[test]
fn a_free_lock_is_granted_to_nobody_and_those_who_wait_are_served_when_it_is_over() {
    for_each(&TAKES, |take| {
        let since = Instant::now();
        let period = format!("lock.recovery-ms {}", PERIOD.as_millis());
        let server = Setup::new().config(SHORT_LAG).config(&period).start();
        let mut client = server.client();
        assert_eq!(client.run(&format!("{take} door alice PX 1000")), Reply::Nil);
        assert_eq!(client.run(&format!("{take} door alice PX 1000 BLOCK 50")), Reply::Nil);
        let mut waiting = Way::ALL.map(|way| (way, way.start(&server, &format!("{take} door-{way:?} bob BLOCK 0"))));
        assert!(remaining_ms(&mut client) > 0);
        for (way, bob) in &mut waiting {
            assert_eq!(bob.reply(), 1, "{take} {way:?}");
            assert_eq!(client.run(&format!("EXISTS door-{way:?}")), 1);
        }
        has_lasted(since);
        assert_eq!(client.run(&format!("{take} door alice PX 1000")), 1);
        assert_eq!(remaining_ms(&mut client), 0);
    });
}

#[test]
fn inside_a_transaction_and_a_script_the_answer_is_nil() {
    let server = in_a_period();
    let mut client = server.client();
    client.ok("MULTI");
    client.run("LOCK.ACQUIRE door alice PX 1000 BLOCK 0");
    assert_eq!(client.run("EXEC"), Reply::List(vec![Reply::Nil]));
    assert_eq!(
        client.run("EVAL return{redis.call('lock.acquire','door','alice','BLOCK','0')} 0"),
        Reply::List(vec![Reply::Nil])
    );
    assert_eq!(client.run("EXISTS door"), 0);
}

#[test]
fn a_holder_that_the_server_knows_of_goes_on() {
    for_each(&TAKES, |take| {
        let server = promoted_with(take);
        let mut client = server.client();
        let again = if *take == "LOCK.REENTER" { 2 } else { 1 };
        assert_eq!(client.run(&format!("{take} door alice PX 700000")), again);
        assert_eq!(client.run("LOCK.EXTEND door alice PX 800000"), 800_000);
        assert!(client.run("LOCK.FENCE door alice counter").int() > 0);
        assert_eq!(client.run(&format!("{take} door bob PX 1000")), Reply::Nil);
        assert_eq!(client.run("LOCK.RELEASE door alice"), again - 1);
    });
}

#[test]
fn a_lock_that_is_released_stays_free_and_the_line_stands() {
    for_each(&TAKES, |take| {
        let server = promoted_with(take);
        let mut client = server.client();
        let [mut bob, mut carol] = ["bob", "carol"]
            .map(|token| Waiter::start(&server, &format!("LOCK.ACQUIRE door {token} PX 60000 BLOCK 0")));
        assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(client.run("EXISTS door"), 0);
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), Reply::Nil, "{take}: not even to who gave it up");
        never_within(OBSERVATION, "the lock is granted", || client.run("EXISTS door") == 1);
        assert_eq!(waiters_of(&mut client, "door"), 2);
        end(&mut client);
        assert_eq!(bob.reply(), 1, "{take}: the first in line");
        assert!(carol.is_blocked());
        assert_eq!(client.run("LOCK.RELEASE door bob"), 0);
        assert_eq!(carol.reply(), 1);
    });
}

#[test]
fn whatever_frees_a_lock_it_stays_free() {
    let ways = ["LOCK.EXTEND door alice PX 20", "DEL door", "RENAME door elsewhere", "FLUSHALL", "PEXPIRE door -1"];
    for_each(&ways, |free| {
        let server = promoted_with("LOCK.ACQUIRE");
        let mut client = server.client();
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        assert!(!client.run(free).is_error(), "{free}");
        eventually("the lock is free", || client.run("EXISTS door") == 0);
        never_within(OBSERVATION, "the lock is granted", || client.run("EXISTS door") == 1 || !bob.is_blocked());
        end(&mut client);
        assert_eq!(bob.reply(), 1, "{free}");
    });
}

#[test]
fn a_permit_that_is_free_is_granted_to_nobody() {
    let server = promoted_with("LOCK.SHARE");
    let mut client = server.client();
    assert_eq!(client.run("LOCK.SHARE door bob PX 60000 LIMIT 3"), Reply::Nil);
    let mut waiting: Vec<_> = ["bob", "carol", "dave"]
        .map(|token| Waiter::start(&server, &format!("LOCK.SHARE door {token} PX 60000 LIMIT 3 BLOCK 0")))
        .into();
    never_within(OBSERVATION, "a permit is granted", || field(&mut client, "door", "holds") != 1);
    end(&mut client);
    let mut dave = waiting.pop().expect("the last in line");
    waiting.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), 1));
    assert!(dave.is_blocked());
    assert_eq!(client.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(dave.reply(), 1);
}

#[test]
fn a_session_whose_lease_ends_gets_the_lock_back_when_it_is_over_before_those_who_wait() {
    for_each(&TAKES, |take| {
        let server = promoted_with(take);
        let (mut alice, mut client) = (server.client(), server.client());
        // Of a server that is held up for less than a second.
        assert_eq!(client.run("LOCK.EXTEND door alice PX 150"), 150);
        assert!(alice.run(&format!("{take} door alice PX 150 SESSION")).int() > 0);
        let bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        client.ok("DEBUG SLEEP 0.5");
        assert_eq!(client.run("LOCK.EXTEND door alice PX 150").code(), "NOTHELD", "{take}");
        never_within(OBSERVATION, "somebody has the lock", || client.run("EXISTS door") == 1 || !bob.is_blocked());
        end(&mut client);
        eventually("alice has it back", || client.run("EXISTS door") == 1);
        assert_eq!(client.run("LOCK.EXTEND door alice PX 150"), 150, "{take}");
        if *take != "LOCK.SHARE" {
            assert_eq!(session_of(&mut client, "door"), [alice.id()]);
        }
        assert!(bob.is_blocked());
    });
}

#[test]
fn a_session_that_ends_leaves_a_free_lock() {
    for_each(&TAKES, |take| {
        let server = promoted_with(take);
        let (mut alice, mut client) = (server.client(), server.client());
        assert!(alice.run(&format!("{take} door alice PX 60000 SESSION")).int() > 0);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        drop(alice);
        eventually("the lock is released", || client.run("EXISTS door") == 0);
        assert_eq!(info_lock(&mut client, "sessions"), 0);
        never_within(OBSERVATION, "the lock is granted", || client.run("EXISTS door") == 1);
        end(&mut client);
        assert_eq!(bob.reply(), 1, "{take}");
    });
}

#[test]
fn of_very_many_who_wait_all_are_served_when_it_is_over() {
    const LOCKS: usize = 2000;
    let server = in_a_period();
    let mut client = server.client();
    let mut waiting: Vec<_> =
        (0..LOCKS).map(|number| Waiter::send(&server, &format!("LOCK.ACQUIRE door{number} bob BLOCK 0"))).collect();
    eventually("all wait", || info_lock(&mut client, "waiters") == i64::try_from(LOCKS).unwrap());
    end(&mut client);
    waiting.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), 1));
    assert_eq!(client.run("DBSIZE"), i64::try_from(LOCKS).unwrap());
}

#[test]
fn nothing_is_written_that_nobody_asked_for() {
    let server = Setup::new().config(Aof::CONFIG).config(WITHOUT_END).start();
    let mut client = server.client();
    let _bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
    assert_eq!(client.run("LOCK.ACQUIRE door alice PX 1000"), Reply::Nil);
    never_within(OBSERVATION, "something is written", || !server.aof().commands().is_empty());
}

#[test]
fn who_waits_on_the_old_master_is_told_so_and_waits_on_the_new_one() {
    let old = master(WITHOUT_END);
    let new = replica_of(&old);
    old.client().ok("CONFIG SET lock.recovery-ms 0");
    let mut alice = old.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    replicated(&mut alice, "mark");
    let mut control = new.client();
    control.ok(&format!("CONFIG SET {WITHOUT_END}"));
    control.ok("REPLICAOF NO ONE");
    old.client().ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    in_step(&old);
    let mut bob = Waiter::start(&new, "LOCK.ACQUIRE door bob BLOCK 0");
    assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
    end(&mut control);
    assert_eq!(bob.reply(), 1);
    eventually("the old master follows", || old.client().run("GET door") == "bob");
}
