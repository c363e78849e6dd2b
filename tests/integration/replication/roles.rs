//! Masters that become replicas, replicas that become masters, and masters that may not write for a while: nobody is
//! left hanging, and no lock is granted by a server that has no say in it.

use std::fs;
use std::time::Duration;

use support::process::Process;
use support::replicas::{in_step, in_time, is_master, master, replica_of, replicated};
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, PATIENCE, Reply, Server, Setup, Waiter, Waiting, Way, eventually, info_lock,
    never_within, now_ms, now_us,
};

const WAIT: &str = "LOCK.ACQUIRE door bob BLOCK 0";

/// The same behind bob, for a message.
const WAIT_BEHIND: &str = "LOCK.ACQUIRE door carol BLOCK 0";

/// How late a waiter may be served, in the best of several rounds: far below the server's own clock tick.
const PUNCTUAL_US: i64 = 5_000;
const ROUNDS: usize = 5;

/// A lock of alice's that outlives the test, and bob, who waits for it.
#[track_caller]
fn contended(server: &Server) -> (Client, Waiter) {
    let mut alice = server.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    (alice, Waiter::start(server, WAIT))
}

/// The server's own ways to end a wait when it becomes a replica, and the module's.
#[track_caller]
pub(super) fn is_told_off(answer: &Reply) {
    assert!(*answer == Reply::Closed || ["UNBLOCKED", LOST].contains(&answer.code()), "{answer:?}");
}

/// The master is a replica now: who waits for a message is told within a second.
#[track_caller]
fn is_lost_soon(waiting: &mut Waiting) {
    assert_eq!(waiting.reply_within(Duration::from_secs(1)).code(), LOST);
}

/// How many waiters have been served so far.
#[track_caller]
pub(super) fn granted(client: &mut Client) -> i64 {
    info_lock(client, "granted_after_waiting")
}

/// Begins a coordinated failover. A replica that has only just come is not online for the server at once.
pub(super) fn begin_failover(client: &mut Client, new: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {}", new.port());
    eventually("the failover begins", || client.run(&failover) == "OK");
}

#[test]
fn master_and_replica_change_places_while_clients_wait() {
    let old = master("");
    let new = replica_of(&old);
    let (mut alice, mut bob) = contended(&old);
    let mut carol = Way::Notified.start(&old, WAIT_BEHIND);
    let lease_end = alice.expires_at("door");
    let locks = Staggered::start(&old, "", 30, 15);
    replicated(&mut alice, "mark");

    old.client().ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    is_lost_soon(&mut carol);
    let granted_before = granted(&mut old.client());
    is_told_off(&bob.reply());
    locks.outlive();
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    let mut on_old = old.client();
    assert_eq!(info_lock(&mut on_old, "waiters"), 0);
    never_within(OBSERVATION, "a replica grants", || granted(&mut on_old) > granted_before);

    new.client().ok("REPLICAOF NO ONE");
    in_step(&old);
    let mut alice = new.client();
    assert_eq!(alice.expires_at("door"), lease_end, "the lease is what it was");
    let mut bob = Waiter::start(&new, WAIT);
    let mut carol = Way::OnOneConnection.start(&new, WAIT_BEHIND);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    eventually("the hand-over arrives", || on_old.run("GET door") == "bob");
    assert_eq!(alice.run("LOCK.RELEASE door bob"), 0);
    assert_eq!(carol.reply(), 1);
}

#[test]
fn a_replica_refuses_to_change_locks_and_still_tells_of_them() {
    let master = master("");
    let replica = replica_of(&master);
    let (_alice, _bob) = contended(&master);
    let mut client = replica.client();
    eventually("the lock arrives", || client.run("GET door") == "alice");
    for line in [
        "LOCK.ACQUIRE door alice",
        "LOCK.ACQUIRE gate alice BLOCK 0",
        "LOCK.ACQUIRE gate alice PX 1000 BLOCK 0 NOTIFY news",
        "LOCK.REENTER gate alice",
        "LOCK.RELEASE door alice",
        "LOCK.EXTEND door alice PX 1000",
        "LOCK.FENCE door alice counter",
    ] {
        assert_eq!(client.run(line).code(), "READONLY", "{line}");
    }
    let info = client.run("LOCK.INFO door");
    assert_eq!(info.get("owner"), "alice");
    assert_eq!(info.get("state"), "mutex");
    assert!((1..=600_000).contains(&info.get("lease-ms").int()));
    assert_eq!(info.get("waiters"), 0, "they wait at the master");
    assert_eq!(client.run("LOCK.WAITERS door"), Reply::list([]));
}

/// Whoever writes to a replica writes to what its master may take away at any moment; nobody is served there.
#[test]
fn a_replica_that_takes_writes_lets_nobody_wait_and_gives_no_sessions() {
    let master = master("");
    let replica = replica_of(&master);
    let [mut control, mut alice, mut bob] = [(); 3].map(|()| replica.client());
    control.ok("CONFIG SET replica-read-only no");
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 60000"), 1);
    for take in ["LOCK.ACQUIRE", "LOCK.REENTER"] {
        assert_eq!(bob.run(&format!("{take} door bob BLOCK 0")), Reply::Nil, "at once");
        assert_eq!(bob.run(&format!("{take} door bob PX 1000 BLOCK 0 NOTIFY news")), Reply::Nil, "at once");
        let refused = bob.run(&format!("{take} gate bob PX 60000 SESSION"));
        assert_eq!(refused.error(), "ERR a session is not allowed on a replica");
    }
    assert_eq!(control.run("EXISTS gate"), 0);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.run("LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), 1, "it is free");
    assert_eq!(info_lock(&mut control, "waiters"), 0);
}

/// Its connection closes while the server is a replica, and the same token takes the lock again after its promotion.
#[test]
fn what_a_former_reign_left_undone_is_not_done_in_the_next() {
    let old = master("");
    let server = replica_of(&old);
    let mut control = server.client();
    control.ok("REPLICAOF NO ONE");
    for lines in [["CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE"], ["PING", "PING"]] {
        let mut alice = server.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
        assert!(!control.run(lines[0]).is_error());
        drop(alice); // In a pause its lock cannot be given up yet.
        control.ok(&format!("REPLICAOF 127.0.0.1 {}", old.port()));
        assert!(!control.run(lines[1]).is_error());
        in_step(&server);
        control.ok("REPLICAOF NO ONE");
        assert_eq!(info_lock(&mut control, "sessions"), 0);
        control.ok("SET door alice PX 600000");
        never_within(OBSERVATION, "the lock is taken back", || control.run("EXISTS door") == 0);
        assert_eq!(control.run("DEL door"), 1);
    }
}

#[test]
fn a_promoted_replica_hands_over_when_the_replicated_lease_ends_and_on_time() {
    let mut late_us = Vec::new();
    for _ in 0..ROUNDS {
        let master = master("");
        let replica = replica_of(&master);
        let mut alice = master.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 1200"), 1);
        let lease_end = alice.expires_at("door");
        assert_eq!(alice.run("WAIT 1 5000"), 1);
        replica.client().ok("REPLICAOF NO ONE");
        let mut bob = Way::Notified.start(&replica, WAIT);
        assert_eq!(bob.reply(), 1);
        let late = now_us() - 1000 * lease_end;
        assert!(late >= 0, "{late} us late, which is early");
        late_us.push(late);
        if late <= PUNCTUAL_US {
            return;
        }
    }
    panic!("us late: {late_us:?}");
}

/// A failover that cannot come to its end because the replica is frozen.
#[track_caller]
pub(super) fn failover_that_hangs(old: &Server, new: &Server) -> Process {
    let replica = Process::of(new);
    replica.stop();
    // So that there is something the replica has not got.
    let mut client = old.client();
    client.ok("SET other x");
    begin_failover(&mut client, new);
    assert_eq!(client.info("replication", "master_failover_state").as_deref(), Some("waiting-for-sync"));
    replica
}

#[test]
fn leases_that_end_during_a_failover_are_not_handed_over_by_the_old_master() {
    let old = master("");
    let new = replica_of(&old);
    let (mut alice, mut bob) = contended(&old);
    let mut carol = Way::OnOneConnection.start(&old, WAIT_BEHIND);
    let locks = Staggered::start(&old, "", 30, 15);
    let lease_end = alice.expires_at("door");
    let replica = failover_that_hangs(&old, &new);
    let granted_before = granted(&mut alice);
    locks.outlive();
    never_within(OBSERVATION, "the old master grants", || granted(&mut alice) > granted_before);
    assert!(bob.is_blocked() && carol.waits());

    replica.resume();
    is_told_off(&bob.reply());
    is_lost_soon(&mut carol);
    in_time("the replica is promoted", || is_master(&new));
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    let mut on_new = new.client();
    outcomes.hold_at(&mut on_new);
    assert_eq!(on_new.expires_at("door"), lease_end);
    let mut bob = Waiter::start(&new, WAIT);
    assert_eq!(on_new.run("LOCK.EXTEND door alice PX 50"), 50);
    assert_eq!(bob.reply(), 1);
    in_step(&old);
    assert_eq!(old.client().run("LOCK.ACQUIRE gate alice").code(), "READONLY");
}

#[test]
fn leases_that_ended_during_a_failover_are_handed_over_when_it_is_called_off() {
    are_served_when_a_failover_is_called_off(Staggered::start);
}

/// Locks that ended during a failover go to those who wait when it is called off.
#[track_caller]
pub(super) fn are_served_when_a_failover_is_called_off(start: fn(&Server, &str, i64, i64) -> Staggered) {
    let old = master("");
    let new = replica_of(&old);
    let locks = start(&old, "", 20, 15);
    let mut client = old.client();
    let replica = failover_that_hangs(&old, &new);
    let granted_before = granted(&mut client);
    locks.outlive();
    assert_eq!(granted(&mut client), granted_before);
    client.ok("FAILOVER ABORT");
    let outcomes = locks.outcomes();
    assert_eq!(outcomes.granted.len(), 20, "not served: {:?}", outcomes.told);
    replica.resume();
    in_step(&new);
    replicated(&mut client, "mark");
    outcomes.hold_at(&mut new.client());
}

#[test]
fn a_failover_while_leases_end_loses_no_grant_and_leaves_nobody_hanging() {
    let old = master("");
    let new = replica_of(&old);
    let locks = Staggered::start(&old, "", 60, 3);
    let mut client = old.client();
    eventually("the first is handed over", || granted(&mut client) > 0);
    begin_failover(&mut client, &new);
    in_time("the replica is promoted", || is_master(&new));
    let outcomes = locks.outcomes();
    outcomes.told.iter().for_each(|(_, told)| is_told_off(told));
    outcomes.hold_at(&mut new.client());
}

#[test]
fn a_session_ends_with_the_reign_of_its_master_and_its_lease_runs_on() {
    let old = master("");
    let new = replica_of(&old);
    let mut alice = old.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 8000 SESSION"), 1);
    begin_failover(&mut old.client(), &new);
    in_time("the replica is promoted", || is_master(&new));
    let mut client = new.client();
    let lease_end = client.expires_at("door");
    let mut bob = Waiter::start(&new, WAIT);
    drop(alice);
    assert_eq!(bob.reply_within(2 * PATIENCE), 1);
    assert!(now_ms() >= lease_end, "neither the end of the connection nor a renewal counts any more");
}

/// The server under test, and one replica without which it does not want to write.
pub(super) fn master_that_needs_a_replica() -> (Server, Server) {
    let master = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
    let replica = replica_of(&master);
    let mut client = master.client();
    in_time("the master takes writes", || !client.run("SET other x").is_error());
    (master, replica)
}

/// Once the master misses its replica nothing is granted, although leases end, until it has one again.
#[track_caller]
fn is_fenced_without_its_replica(master: &Server, locks: Staggered, bring_back: impl FnOnce()) {
    let mut client = master.client();
    in_time("the replica is missed", || client.run("SET other x").is_error());
    let granted_before = granted(&mut client);
    assert_eq!(client.run("LOCK.ACQUIRE new alice").code(), "NOREPLICAS");
    assert_ne!(info_lock(&mut client, "waiters"), 0, "leases are left to end");
    locks.outlive();
    never_within(OBSERVATION, "the old master grants", || granted(&mut client) > granted_before);
    bring_back();
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);
    outcomes.hold_at(&mut client);
}

#[test]
fn a_master_whose_replica_is_frozen_grants_nothing_until_it_is_back() {
    let (master, replica) = master_that_needs_a_replica();
    let locks = Staggered::start(&master, "", 60, 70);
    let process = Process::of(&replica);
    process.stop();
    is_fenced_without_its_replica(&master, locks, || process.resume());
}

#[test]
fn a_master_whose_replica_died_grants_nothing_until_it_has_another() {
    let (master, mut replica) = master_that_needs_a_replica();
    let locks = Staggered::start(&master, "", 20, 20);
    Process::kill(&mut replica);
    let mut another = None;
    is_fenced_without_its_replica(&master, locks, || another = Some(replica_of(&master)));
}

#[test]
fn a_master_that_cannot_save_grants_nothing_until_it_can() {
    let server = Setup::new().config("save 3600 1000000\ndbfilename target.rdb").start();
    let obstacle = server.directory().join("target.rdb");
    // Not even root can rename a file onto a folder.
    fs::create_dir(&obstacle).expect("a folder in the file's place");
    let locks = Staggered::start(&server, "", 20, 20);
    let mut client = server.client();
    assert!(!client.run("BGSAVE").is_error());
    eventually("writes are refused", || client.run("SET other x").is_error());
    assert_eq!(client.run("LOCK.ACQUIRE new alice").code(), "MISCONF");
    let granted_before = granted(&mut client);
    assert!(granted_before < 20, "leases are left to end");
    locks.outlive();
    never_within(OBSERVATION, "a lock is granted", || granted(&mut client) > granted_before);
    fs::remove_dir(&obstacle).expect("the folder goes");
    assert!(!client.run("BGSAVE").is_error());
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);
    outcomes.hold_at(&mut client);
}

#[test]
fn in_a_pause_of_everything_waits_end_on_time_and_leases_are_handed_over_afterwards() {
    const PAUSE_MS: i64 = 600;
    let master = master("appendonly yes");
    let replica = replica_of(&master);
    let (mut alice, mut bob) = contended(&master);
    let locks = Staggered::start(&master, "", 20, 15);
    let mut gone = Way::ALL.map(|way| way.start(&master, &format!("LOCK.ACQUIRE door {way:?} BLOCK 150")));
    let paused_at = now_ms();
    alice.ok(&format!("CLIENT PAUSE {PAUSE_MS} ALL"));
    gone.iter_mut().for_each(|gone| assert_eq!(gone.reply(), Reply::Nil));
    assert!(now_ms() < paused_at + PAUSE_MS, "answered in the pause");
    locks.outlive();
    assert!(now_ms() < paused_at + PAUSE_MS, "the leases have ended in the pause");
    let outcomes = locks.outcomes();
    assert!(now_ms() >= paused_at + PAUSE_MS, "nobody was served in the pause");
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);
    assert_eq!(alice.run("LOCK.RELEASE door alice"), 0);
    assert_eq!(bob.reply(), 1);
    assert_eq!(alice.run("WAIT 1 5000"), 1);
    outcomes.hold_at(&mut replica.client());
}

#[test]
fn leases_that_end_while_a_shutdown_waits_for_a_replica_are_handed_over_if_it_is_called_off() {
    let mut master = master("shutdown-timeout 60");
    let replica = replica_of(&master);
    let (mut alice, mut bob) = contended(&master);
    let locks = Staggered::start(&master, "", 20, 15);
    let mut carol = Way::Notified.start(&master, WAIT_BEHIND);
    let process = Process::of(&replica);
    process.stop();
    alice.ok("SET other x");
    let mut leaver = master.client();
    leaver.send(&["SHUTDOWN", "NOSAVE"]);
    eventually("the shutdown waits", || alice.info("server", "shutdown_in_milliseconds").is_some());
    let granted_before = granted(&mut alice);
    locks.outlive();
    never_within(OBSERVATION, "a lock is granted", || granted(&mut alice) > granted_before);
    alice.ok("SHUTDOWN ABORT");
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not served: {:?}", outcomes.told);

    alice.send(&["SHUTDOWN", "NOSAVE"]);
    process.resume();
    assert_eq!([bob.reply(), carol.reply()], [Reply::Closed, Reply::Closed]);
    master.wait_for_end();
    outcomes.hold_at(&mut replica.client());
}
