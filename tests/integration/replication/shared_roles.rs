//! Shared locks, and masters that become replicas, replicas that become masters, and masters that may not write for a
//! while: no share is lost, no permit is passed on by a server that has no say in it, and nobody is left hanging.

use std::time::Duration;

use support::process::Process;
use support::replicas::{in_step, in_time, is_master, master, replica_of, replicated};
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, Reply, Server, Waiter, Waiting, Way, eventually, field, info_lock, never_within, now_ms,
};

use super::roles::{
    are_served_when_a_failover_is_called_off, begin_failover, failover_that_hangs, granted, is_told_off,
    master_that_needs_a_replica,
};
use crate::shares::{holders_of, shares_of};

const WAIT: &str = "LOCK.SHARE pool bob LIMIT 2 PX 600000 BLOCK 0";

/// The same behind bob, for a message.
const WAIT_BEHIND: &str = "LOCK.SHARE pool carol LIMIT 2 PX 600000 BLOCK 0";

/// Behind both.
const WAIT_ALONE: &str = "LOCK.ACQUIRE pool dave PX 600000 BLOCK 0";

/// Two permits that alice and zoe hold for the length of the test.
#[track_caller]
fn shared(server: &Server) -> Client {
    let mut control = server.client();
    for (name, ms) in [("alice", 500_000), ("zoe", 600_000)] {
        assert_eq!(control.run(&format!("LOCK.SHARE pool {name} LIMIT 2 PX {ms}")), 1);
    }
    control
}

/// Those who wait for them.
#[track_caller]
fn line_up(server: &Server) -> (Waiter, [Waiting; 2]) {
    let bob = Waiter::start(server, WAIT);
    (bob, [Way::Notified.start(server, WAIT_BEHIND), Way::OnOneConnection.start(server, WAIT_ALONE)])
}

#[track_caller]
fn are_told_off(bob: &mut Waiter, others: &mut [Waiting; 2]) {
    is_told_off(&bob.reply());
    for waiting in others {
        assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST);
    }
}

/// Those who ask again are served in their order.
#[track_caller]
fn goes_on_at(server: &Server) {
    let mut control = server.client();
    let (mut bob, [mut carol, mut dave]) = line_up(server);
    assert_eq!(control.run("LOCK.EXTEND pool alice PX 50"), 50);
    assert_eq!(bob.reply(), 1, "when the share of alice ends");
    assert_eq!(control.run("LOCK.RELEASE pool zoe"), 0);
    assert_eq!(carol.reply(), 1);
    assert_eq!(holders_of(&mut control, "pool"), ["bob", "carol"]);
    for name in ["bob", "carol"] {
        assert!(dave.waits());
        assert_eq!(control.run(&format!("LOCK.RELEASE pool {name}")), 0);
    }
    assert_eq!(dave.reply(), 1);
}

#[test]
fn a_replica_shows_the_shares_and_refuses_to_change_them() {
    let master = master("");
    let replica = replica_of(&master);
    let mut control = shared(&master);
    let _waiting = line_up(&master);
    let mut reader = replica.client();
    eventually("the shares arrive", || shares_of(&mut reader, "pool") == shares_of(&mut control, "pool"));
    assert_eq!(reader.expires_at("pool"), control.expires_at("pool"));
    for line in [
        "LOCK.SHARE pool alice",
        "LOCK.SHARE pool erin LIMIT 9",
        "LOCK.SHARE gate erin BLOCK 0",
        "LOCK.SHARE gate erin PX 1000 BLOCK 0 NOTIFY news",
        "LOCK.SHARE gate erin PX 1000 SESSION",
        "LOCK.RELEASE pool alice",
        "LOCK.EXTEND pool alice PX 1000",
        "LOCK.FENCE pool alice counter",
    ] {
        assert_eq!(reader.run(line).code(), "READONLY", "{line}");
    }
    let info = reader.run("LOCK.INFO pool");
    assert_eq!((info.get("state"), info.get("holds")), (Reply::text("shared"), Reply::Int(2)));
    assert!((500_000..=600_000).contains(&info.get("lease-ms").int()));
    assert_eq!(info.get("waiters"), 0, "they wait at the master");
}

#[test]
fn a_replica_that_takes_writes_lets_nobody_wait_for_a_share_and_gives_no_sessions() {
    let master = master("");
    let replica = replica_of(&master);
    let [mut control, mut client] = [(); 2].map(|()| replica.client());
    control.ok("CONFIG SET replica-read-only no");
    assert_eq!(client.run("LOCK.SHARE pool alice PX 60000"), 1);
    assert_eq!(client.run("LOCK.SHARE pool bob PX 60000 LIMIT 1 BLOCK 0"), Reply::Nil, "at once");
    assert_eq!(client.run("LOCK.SHARE pool bob PX 60000 LIMIT 1 BLOCK 0 NOTIFY news"), Reply::Nil, "at once");
    assert_eq!(client.run("LOCK.SHARE pool bob PX 60000 SESSION").error(), "ERR a session is not allowed on a replica");
    assert_eq!(client.run("LOCK.SHARE pool bob PX 60000 LIMIT 2 BLOCK 0"), 1, "there is room");
    assert_eq!(info_lock(&mut control, "waiters"), 0);
}

/// Its TTL is that of the last share: the replica learns of the others' ends from the master, or from their scores.
#[test]
fn shares_that_have_ended_count_neither_on_a_replica_nor_after_its_promotion() {
    let master = master("");
    let replica = replica_of(&master);
    let mut control = shared(&master);
    for number in 0..3 {
        assert_eq!(control.run(&format!("LOCK.SHARE pool short{number} PX {}", 400 + number)), 1);
    }
    replicated(&mut control, "mark");
    let mut reader = replica.client();
    eventually("they end on the replica", || field(&mut reader, "pool", "holds") == 2);
    assert_eq!(reader.run("ZCARD pool"), 5, "nobody has removed them");
    assert_eq!(field(&mut control, "pool", "holds"), 2);
    reader.ok("REPLICAOF NO ONE");
    assert_eq!(reader.run("LOCK.EXTEND pool short0 PX 60000").code(), "NOTOWNER");
    assert_eq!(reader.run("LOCK.SHARE pool erin LIMIT 2"), Reply::Nil);
    assert_eq!(reader.run("LOCK.SHARE pool erin LIMIT 3 PX 60000"), 1);
    assert_eq!(holders_of(&mut reader, "pool"), ["alice", "erin", "zoe"], "gone with the next write");
}

/// Nobody has told the replica that the key has expired.
#[test]
fn a_lock_whose_last_share_has_ended_is_free_on_a_replica_and_after_its_promotion() {
    let master = master("");
    let replica = replica_of(&master);
    let mut control = master.client();
    control.ok("DEBUG SET-ACTIVE-EXPIRE 0");
    for ms in [300, 301] {
        assert_eq!(control.run(&format!("LOCK.SHARE pool short{ms} PX {ms}")), 1);
    }
    replicated(&mut control, "mark");
    let mut reader = replica.client();
    eventually("it is free", || field(&mut reader, "pool", "state") == "free");
    reader.ok("REPLICAOF NO ONE");
    assert_eq!(reader.run("LOCK.EXTEND pool short300 PX 60000").code(), "NOTHELD");
    assert_eq!(reader.run(WAIT_ALONE), 1);
}

#[test]
fn a_promoted_replica_passes_a_permit_on_when_a_replicated_share_ends() {
    for way in Way::ALL {
        let master = master("");
        let replica = replica_of(&master);
        let mut control = master.client();
        assert_eq!(control.run("LOCK.SHARE pool zoe PX 600000"), 1);
        assert_eq!(control.run("LOCK.SHARE pool alice PX 1000"), 1);
        let end: i64 = shares_of(&mut control, "pool")[0].1.parse().expect("the end of alice's");
        assert_eq!(control.run("WAIT 1 5000"), 1);
        let mut promoted = replica.client();
        promoted.ok("REPLICAOF NO ONE");
        let mut bob = way.send(&replica, WAIT);
        assert_eq!(bob.reply(), 1, "{way:?}");
        assert!(now_ms() >= end, "{way:?}: not before the end");
        assert_eq!(holders_of(&mut promoted, "pool"), ["bob", "zoe"]);
    }
}

#[test]
fn master_and_replica_change_places_while_clients_wait_for_shares() {
    let old = master("");
    let new = replica_of(&old);
    let mut control = shared(&old);
    let (mut bob, mut others) = line_up(&old);
    let locks = Staggered::start_shared(&old, "", 30, 15);
    replicated(&mut control, "mark");
    let before = shares_of(&mut control, "pool");

    old.client().ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    are_told_off(&mut bob, &mut others);
    let granted_before = granted(&mut old.client());
    locks.outlive();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    let mut on_old = old.client();
    assert_eq!(info_lock(&mut on_old, "waiters"), 0);
    never_within(OBSERVATION, "a replica grants", || granted(&mut on_old) > granted_before);

    let mut on_new = new.client();
    on_new.ok("REPLICAOF NO ONE");
    in_step(&old);
    assert_eq!(shares_of(&mut on_new, "pool"), before, "the leases are what they were");
    goes_on_at(&new);
    eventually("the hand-over arrives", || on_old.run("GET pool") == "dave");
}

#[test]
fn a_failover_while_shares_end_loses_none_and_leaves_nobody_hanging() {
    let old = master("");
    let new = replica_of(&old);
    let mut control = shared(&old);
    let before = shares_of(&mut control, "pool");
    let locks = Staggered::start_shared(&old, "", 60, 3);
    eventually("the first is passed on", || granted(&mut control) > 0);
    begin_failover(&mut control, &new);
    in_time("the replica is promoted", || is_master(&new));
    let outcomes = locks.outcomes();
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    outcomes.hold_at(&mut new.client());
    assert_eq!(shares_of(&mut new.client(), "pool"), before);
    goes_on_at(&new);
}

#[test]
fn shares_that_end_during_a_failover_are_not_passed_on_by_the_old_master() {
    let old = master("");
    let new = replica_of(&old);
    let mut control = shared(&old);
    let (mut bob, mut others) = line_up(&old);
    let locks = Staggered::start_shared(&old, "", 30, 15);
    let replica = failover_that_hangs(&old, &new);
    let granted_before = granted(&mut control);
    locks.outlive();
    never_within(OBSERVATION, "the old master grants", || granted(&mut control) > granted_before);
    assert!(bob.is_blocked() && others.iter_mut().all(Waiting::waits));

    replica.resume();
    are_told_off(&mut bob, &mut others);
    in_time("the replica is promoted", || is_master(&new));
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    outcomes.hold_at(&mut new.client());
    goes_on_at(&new);
}

#[test]
fn shares_that_ended_during_a_failover_are_passed_on_when_it_is_called_off() {
    are_served_when_a_failover_is_called_off(Staggered::start_shared);
}

#[test]
fn sessions_of_shares_end_with_the_reign_of_their_master_and_the_leases_run_on() {
    let old = master("");
    let new = replica_of(&old);
    let mut alice = old.client();
    assert_eq!(alice.run("LOCK.SHARE pool alice PX 8000 LIMIT 2 SESSION"), 1);
    assert_eq!(alice.run("LOCK.SHARE pool zoe PX 600000 LIMIT 2"), 1);
    begin_failover(&mut old.client(), &new);
    in_time("the replica is promoted", || is_master(&new));
    let mut client = new.client();
    let end: i64 = shares_of(&mut client, "pool")[0].1.parse().expect("the end of alice's");
    let mut bob = Waiter::start(&new, WAIT);
    drop(alice);
    assert_eq!(bob.reply_within(2 * support::PATIENCE), 1);
    assert!(now_ms() >= end, "neither the end of the connection nor a renewal counts any more");
    assert_eq!(holders_of(&mut client, "pool"), ["bob", "zoe"]);
}

#[test]
fn a_master_whose_replica_is_frozen_passes_no_permit_on_until_it_is_back() {
    let (master, replica) = master_that_needs_a_replica();
    let mut client = master.client();
    assert_eq!(client.run("LOCK.SHARE pool zoe PX 600000"), 1);
    let mut holder = master.client();
    assert_eq!(holder.run("LOCK.SHARE pool alice PX 600000 SESSION"), 1);
    let locks = Staggered::start_shared(&master, "", 60, 70);
    let mut bob = Waiter::start(&master, WAIT);
    let process = Process::of(&replica);
    process.stop();
    in_time("the replica is missed", || client.run("SET other x").is_error());
    let granted_before = granted(&mut client);
    assert_eq!(client.run("LOCK.SHARE pool erin").code(), "NOREPLICAS");
    drop(holder);
    assert_ne!(info_lock(&mut client, "waiters"), 1, "shares are left to end");
    locks.outlive();
    never_within(OBSERVATION, "a permit is passed on", || granted(&mut client) > granted_before);
    assert!(bob.is_blocked());
    assert_eq!(client.run("ZCARD pool"), 2, "nothing is written");
    process.resume();
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);
    outcomes.hold_at(&mut client);
    assert_eq!(bob.reply(), 1, "the session has ended");
    assert_eq!(holders_of(&mut client, "pool"), ["bob", "zoe"]);
}

#[test]
fn in_a_pause_of_everything_shares_end_and_are_passed_on_afterwards() {
    let master = master("appendonly yes");
    let replica = replica_of(&master);
    let mut control = shared(&master);
    let (mut bob, mut others) = line_up(&master);
    let locks = Staggered::start_shared(&master, "", 20, 15);
    let paused_until = now_ms() + 600;
    control.ok("CLIENT PAUSE 600 ALL");
    locks.outlive();
    assert!(now_ms() < paused_until, "the shares have ended in the pause");
    let outcomes = locks.outcomes();
    assert!(now_ms() >= paused_until, "nobody was served in the pause");
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);
    assert_eq!(control.run("LOCK.RELEASE pool alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert!(others.iter_mut().all(Waiting::waits));
    assert_eq!(control.run("WAIT 1 5000"), 1);
    outcomes.hold_at(&mut replica.client());
}
