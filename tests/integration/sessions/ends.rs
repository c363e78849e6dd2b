//! What ends a session although its connection stays open: nothing is renewed or released any more, even if the same
//! token holds the lock again.

use support::parallel::for_each;
use support::sessions::{in_session, is_connected, is_renewed, runs_out, session_of};
use support::{Client, OBSERVATION, Server, Waiter, eventually, field, info_lock, never_within};

const LEASE_MS: i64 = 150;

/// How a mutex and a re-entrant lock are taken, and the same lock made by a foreign write.
const KINDS: [(&str, &str); 2] = [("LOCK.ACQUIRE", "SET door alice"), ("LOCK.REENTER", "HSET door alice 1")];

/// Puts the lock there in one step, with a lease.
#[track_caller]
fn put(client: &mut Client, make: &str) {
    let lease = format!("PEXPIRE door {}", 2 * LEASE_MS);
    client.send_together(&["MULTI", make, &lease, "EXEC"]);
    let replies = [(); 4].map(|()| client.receive());
    assert!(replies.iter().all(|reply| !reply.is_error()), "{make}: {replies:?}");
}

/// The connection closes, and the lock stays.
#[track_caller]
fn closes_and_releases_nothing(control: &mut Client, alice: Client) {
    let id = alice.id();
    drop(alice);
    eventually("alice is gone", || !is_connected(control, id));
    never_within(OBSERVATION, "the lock is released", || control.run("EXISTS door") == 0);
}

/// After the lines of one case the session is over. Each case has a server of its own for each kind of lock.
#[track_caller]
fn ends_with(cases: &[&[&str]]) {
    let cases: Vec<_> = cases.iter().flat_map(|lines| KINDS.map(|kind| (*lines, kind))).collect();
    for_each(&cases, |(lines, (take, make))| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        is_renewed(&mut control, "door");
        // On a connection of their own: MOVE leaves it in another database on servers without valkey-io/valkey#4024.
        let mut other = server.client();
        for line in *lines {
            let reply = other.run(line);
            assert!(!reply.is_error() && reply != 0, "{line}: {reply:?}");
        }
        assert_eq!(control.run("EXISTS door"), 0, "{lines:?}");
        assert_eq!(info_lock(&mut control, "sessions"), 0, "{lines:?}");
        put(&mut control, make);
        runs_out(&mut control, "door");
        assert!(!control.run(make).is_error());
        closes_and_releases_nothing(&mut control, alice);
    });
}

/// Without what the other tests do, the same lock would be renewed and released: a session cannot tell it from its own.
#[test]
fn control_a_lock_that_looks_the_same_is_the_sessions() {
    for_each(&KINDS, |(take, make)| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        put(&mut control, make);
        is_renewed(&mut control, "door");
        drop(alice);
        eventually("the lock is released", || control.run("EXISTS door") == 0);
    });
}

#[test]
fn del_unlink_and_getdel() {
    ends_with(&[&["DEL door"], &["UNLINK door"], &["EVAL return{redis.call('del','door')} 0"]]);
    let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut control = server.client();
    assert_eq!(control.run("GETDEL door"), "alice");
    put(&mut control, "SET door alice");
    runs_out(&mut control, "door");
    drop(alice);
}

/// Redis calls it a `del`, Valkey says `expired` as of a lease that ran out.
#[test]
fn a_lease_that_a_command_sets_into_the_past() {
    ends_with(&[&["EXPIRE door -1"], &["PEXPIRE door 0"], &["PEXPIREAT door 1"]]);
    let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut control = server.client();
    assert_eq!(control.run("GETEX door PXAT 1"), "alice");
    put(&mut control, "SET door alice");
    runs_out(&mut control, "door");
    drop(alice);
}

/// The lease was changed a moment ago, and the session has not looked at it yet.
#[test]
fn taken_away_right_behind_a_foreign_lease() {
    let cases = [
        ["PEXPIRE door 5000", "FLUSHALL"],
        ["PERSIST door", "FLUSHDB"],
        ["PEXPIRE door 5000", "SWAPDB 0 1"],
        ["PEXPIRE door 5000", "PEXPIRE door -1"],
    ];
    for_each(&cases, |lines| {
        let (server, alice) = in_session("LOCK.ACQUIRE", 1000);
        let mut control = server.client();
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        control.send_together(&["MULTI", lines[0], lines[1], "EXEC"]);
        assert!((0..4).all(|_| !control.receive().is_error()));
        assert_eq!(bob.reply(), 1, "{lines:?}");
        drop(alice);
        never_within(OBSERVATION, "the lock goes with the old session", || control.run("GET door") != "bob");
    });
}

#[test]
fn another_key_in_its_place() {
    for_each(&["RENAME other door", "COPY other door REPLACE"], |line| {
        let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
        let mut control = server.client();
        control.ok("SET other alice");
        is_renewed(&mut control, "door");
        control.send_together(&[line, "PEXPIRE door 300"]);
        assert!(!control.receive().is_error() && control.receive() == 1);
        runs_out(&mut control, "door");
        drop(alice);
    });
}

#[test]
fn rename_and_move_away() {
    ends_with(&[&["RENAME door elsewhere"], &["MOVE door 1"]]);
}

#[test]
fn flush_and_swap() {
    ends_with(&[&["FLUSHDB"], &["FLUSHALL ASYNC"], &["SELECT 1", "FLUSHALL", "SELECT 0"]]);
    ends_with(&[&["SWAPDB 0 1"], &["SWAPDB 1 0"]]);
}

#[test]
fn eviction() {
    let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut control = server.client();
    control.ok("CONFIG SET maxmemory-policy allkeys-random");
    control.ok("CONFIG SET maxmemory 1");
    eventually("the lock is evicted", || control.run("EXISTS door") == 0);
    control.ok("CONFIG SET maxmemory 0");
    never_within(OBSERVATION, "the session takes it back", || control.run("EXISTS door") == 1);
    put(&mut control, "SET door alice");
    runs_out(&mut control, "door");
    drop(alice);
}

#[test]
fn the_last_release_by_whichever_connection() {
    for_each(&KINDS, |(take, make)| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        is_renewed(&mut control, "door");
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(session_of(&mut control, "door"), [] as [i64; 0]);
        put(&mut control, make);
        runs_out(&mut control, "door");
        assert!(!control.run(make).is_error());
        closes_and_releases_nothing(&mut control, alice);
    });
}

#[test]
fn a_new_grant_to_the_same_token_without_session() {
    for_each(&KINDS, |(take, _)| {
        let (server, mut alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        is_renewed(&mut control, "door");
        assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(alice.run(&format!("{take} door alice PX {}", 2 * LEASE_MS)), 1);
        runs_out(&mut control, "door");
        assert_eq!(alice.run(&format!("{take} door alice PX 600000")), 1);
        closes_and_releases_nothing(&mut control, alice);
    });
}

#[test]
fn a_new_grant_after_waiting_to_the_same_token_without_session() {
    let (server, alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut control = server.client();
    let line = format!("LOCK.ACQUIRE door alice NX PX {} BLOCK 0", 2 * LEASE_MS);
    let mut again = Waiter::start(&server, &line);
    is_renewed(&mut control, "door");
    assert_eq!(control.run("DEL door"), 1);
    assert_eq!(again.reply(), 1);
    runs_out(&mut control, "door");
    assert_eq!(control.run("LOCK.ACQUIRE door alice"), 1);
    closes_and_releases_nothing(&mut control, alice);
}

#[test]
fn a_hand_over() {
    let ways = ["LOCK.RELEASE door alice", "DEL door", "FLUSHALL"];
    let cases: Vec<_> = ways.iter().flat_map(|free| KINDS.map(|(take, _)| (free, take))).collect();
    for_each(&cases, |(free, take)| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        let mut bob = Waiter::start(&server, &format!("{take} door bob PX {} BLOCK 0", 2 * LEASE_MS));
        is_renewed(&mut control, "door");
        assert!(!control.run(free).is_error());
        assert_eq!(bob.reply(), 1, "{take} {free}");
        runs_out(&mut control, "door");
        assert_eq!(control.run(&format!("{take} door bob")), 1);
        closes_and_releases_nothing(&mut control, alice);
        assert_eq!(field(&mut control, "door", "owner"), "bob");
    });
}

#[test]
fn a_foreign_write_over_it() {
    let writes = ["SET door bob", "COPY bobs door REPLACE", "RENAME bobs door"];
    let cases: Vec<_> = writes.iter().flat_map(|write| KINDS.map(|(take, _)| (write, take))).collect();
    for_each(&cases, |(write, take)| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        control.ok("SET bobs bob");
        is_renewed(&mut control, "door");
        put(&mut control, write);
        assert_eq!(control.run("GET door"), "bob");
        runs_out(&mut control, "door");
        control.ok("SET door bob");
        closes_and_releases_nothing(&mut control, alice);
    });
}

#[test]
fn a_foreign_write_over_it_just_before_the_connection_closes() {
    let server = Server::start();
    let mut control = server.client();
    for (take, _) in KINDS {
        let mut alice = server.client();
        assert_eq!(alice.run(&format!("{take} door alice PX 600000 SESSION")), 1);
        control.ok("SET door bob");
        closes_and_releases_nothing(&mut control, alice);
        assert_eq!(control.run("GET door"), "bob");
        assert_eq!(info_lock(&mut control, "sessions"), 0);
        assert_eq!(control.run("DEL door"), 1);
    }
}

/// It is not the session's any more, however soon the foreign lease ends and however long its own would have run.
#[test]
fn a_foreign_write_whose_lease_ends_before_the_next_renewal() {
    for_each(&KINDS, |(take, _)| {
        let (server, alice) = in_session(take, 600_000);
        let mut control = server.client();
        control.ok("SET door bob PX 200");
        assert_eq!(session_of(&mut control, "door"), [] as [i64; 0], "{take}: the lock is bob's");
        assert_eq!(control.run("LOCK.EXTEND door bob PX 100"), 100);
        runs_out(&mut control, "door");
        control.ok("SET door alice");
        closes_and_releases_nothing(&mut control, alice);
    });
}

#[test]
fn a_foreign_write_that_nobody_asked_about_before_its_lease_ended() {
    for_each(&KINDS, |(take, _)| {
        let (server, alice) = in_session(take, 600_000);
        let mut control = server.client();
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        control.ok("SET door carol PX 50");
        assert_eq!(bob.reply(), 1, "{take}");
        closes_and_releases_nothing(&mut control, alice);
        assert_eq!(control.run("GET door"), "bob");
    });
}

/// Whoever takes the lease away has a reason: it stays away. The lock is the connection's all the same.
#[test]
fn persist_is_left_alone() {
    for_each(&KINDS, |(take, _)| {
        let (server, alice) = in_session(take, LEASE_MS);
        let mut control = server.client();
        is_renewed(&mut control, "door");
        assert_eq!(control.run("PERSIST door"), 1);
        never_within(2 * OBSERVATION, "it gets a lease again", || control.pttl("door") != -1);
        let mut bob = Waiter::start(&server, "LOCK.ACQUIRE door bob BLOCK 0");
        drop(alice);
        assert_eq!(bob.reply(), 1, "{take}");
    });
}

#[test]
fn a_longer_lease_is_left_alone() {
    let (server, _alice) = in_session("LOCK.ACQUIRE", LEASE_MS);
    let mut control = server.client();
    is_renewed(&mut control, "door");
    assert_eq!(control.run("PEXPIRE door 600000"), 1);
    let end = control.expires_at("door");
    never_within(2 * OBSERVATION, "it is renewed", || control.expires_at("door") != end);
    assert_eq!(control.run("PEXPIRE door 120"), 1);
    is_renewed(&mut control, "door");
}
