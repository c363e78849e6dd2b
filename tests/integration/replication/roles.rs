//! Masters that become replicas, replicas that become masters, and masters that must not write for a while: each waiter receives
//! a reply, and no lock is granted by a server that must not grant it. Many leases end in each of these moments.

use std::fs;

use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_step, in_time, is_master, master, replica_of, replicated};
use support::staggered::{Outcomes, Staggered};
use support::{Client, LOST, OBSERVATION, Reply, Server, Setup, Way, eventually, info_lock, never_within};

/// Returns how many waiters have been granted their lock so far.
#[track_caller]
fn granted(client: &mut Client) -> i64 {
    info_lock(client, "granted_after_waiting")
}

/// Begins a coordinated failover. The server needs some time to accept a new replica.
fn begin_failover(client: &mut Client, new: &Server) {
    let failover = format!("FAILOVER TO 127.0.0.1 {}", new.port());
    eventually("the failover begins", || client.run(&failover) == "OK");
}

/// Begins a failover that does not end because the replica is stopped.
#[track_caller]
fn failover_that_hangs(old: &Server, new: &Server) -> Process {
    let replica = Process::of(new);
    replica.stop();
    // The replica does not receive this write.
    let mut client = old.client();
    client.ok("SET other x");
    begin_failover(&mut client, new);
    assert_eq!(client.info("replication", "master_failover_state").as_deref(), Some("waiting-for-sync"));
    replica
}

/// The leases end, and this server grants nothing.
#[track_caller]
fn grants_nothing(client: &mut Client, locks: &Staggered) {
    let before = granted(client);
    locks.outlive();
    never_within(OBSERVATION, "a lock is granted", || granted(client) > before);
}

/// The waits that were not granted ended because the server is a replica now. The new master has the grants.
#[track_caller]
fn others_are_aborted(outcomes: &Outcomes, new: &Server) {
    for (key, reply) in &outcomes.told {
        assert!(*reply == Reply::Closed || ["UNBLOCKED", LOST].contains(&reply.code()), "{key}: {reply:?}");
    }
    outcomes.hold_at(&mut new.client());
}

#[track_caller]
fn all_are_granted(locks: Staggered) -> Outcomes {
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not granted: {:?}", outcomes.told);
    outcomes
}

#[test]
fn failover_while_leases_end_loses_no_grant() {
    for_each(&Staggered::FORMS, |begin| {
        let old = master("");
        let new = replica_of(&old);
        let mut alice = old.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
        let end = alice.expires_at("door");
        let locks = begin(&old, "", 60, 3);
        eventually("the first is granted", || granted(&mut alice) > 0);
        begin_failover(&mut alice, &new);
        in_time("the replica is promoted", || is_master(&new));
        others_are_aborted(&locks.outcomes(), &new);
        let mut alice = new.client();
        assert_eq!(alice.expires_at("door"), end);
        let mut waiters = Way::ALL.map(|way| way.start(&new, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0")));
        assert_eq!(alice.run("LOCK.EXTEND door alice PX 50"), 50);
        for (way, waiter) in Way::ALL.iter().zip(&mut waiters) {
            assert_eq!(waiter.reply(), 1);
            assert_eq!(alice.run(&format!("LOCK.RELEASE door {way:?}")), 0);
        }
    });
}

#[test]
fn old_master_grants_nothing_during_failover() {
    for_each(&Staggered::FORMS, |begin| {
        let old = master("");
        let new = replica_of(&old);
        let locks = begin(&old, "", 30, 15);
        let replica = failover_that_hangs(&old, &new);
        let mut client = old.client();
        let before = granted(&mut client);
        grants_nothing(&mut client, &locks);
        replica.resume();
        in_time("the replica is promoted", || is_master(&new));
        let outcomes = locks.outcomes();
        assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), before);
        others_are_aborted(&outcomes, &new);
        in_step(&old);
        assert_eq!(old.client().run("LOCK.ACQUIRE gate alice").code(), "READONLY");
    });
}

#[test]
fn locks_are_granted_when_failover_is_aborted() {
    for_each(&Staggered::FORMS, |begin| {
        let old = master("");
        let new = replica_of(&old);
        let locks = begin(&old, "", 20, 15);
        let replica = failover_that_hangs(&old, &new);
        let mut client = old.client();
        grants_nothing(&mut client, &locks);
        client.ok("FAILOVER ABORT");
        let outcomes = all_are_granted(locks);
        replica.resume();
        in_step(&new);
        replicated(&mut client, "mark");
        outcomes.hold_at(&mut new.client());
    });
}

/// While the server refuses writes with this error, nothing is granted although leases end.
#[track_caller]
fn grants_nothing_while_refused(client: &mut Client, locks: &Staggered, code: &str) {
    in_time("writes are refused", || client.run("SET other x").is_error());
    assert_eq!(client.run("LOCK.ACQUIRE new alice").code(), code);
    assert_ne!(info_lock(client, "waiters"), 0, "no lease is left to end");
    grants_nothing(client, locks);
}

/// The connection of a session closes in this time, too. Its lock is released afterwards.
#[test]
fn master_grants_nothing_while_replica_is_stopped() {
    for_each(&Staggered::FORMS, |begin| {
        let master = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
        let replica = replica_of(&master);
        let [mut holder, mut client] = [(); 2].map(|()| master.client());
        in_time("the master takes writes", || !client.run("SET other x").is_error());
        assert_eq!(holder.run("LOCK.ACQUIRE door alice PX 600000 SESSION"), 1);
        let mut bob = Way::Blocked.start(&master, "LOCK.ACQUIRE door bob BLOCK 0");
        let locks = begin(&master, "", 60, 70);
        let process = Process::of(&replica);
        process.stop();
        in_time("writes are refused", || client.run("SET other x").is_error());
        drop(holder);
        grants_nothing_while_refused(&mut client, &locks, "NOREPLICAS");
        assert!(bob.waits());
        assert_eq!(client.run("GET door"), "alice");
        process.resume();
        all_are_granted(locks).hold_at(&mut client);
        assert_eq!(bob.reply(), 1);
    });
}

#[test]
fn master_that_cannot_save_grants_nothing() {
    let server = Setup::new().config("save 3600 1000000\ndbfilename target.rdb").start();
    let obstacle = server.directory().join("target.rdb");
    // Not even root can rename a file onto a folder.
    fs::create_dir(&obstacle).expect("a folder instead of the file");
    let locks = Staggered::start(&server, "", 20, 20);
    let mut client = server.client();
    assert!(!client.run("BGSAVE").is_error());
    grants_nothing_while_refused(&mut client, &locks, "MISCONF");
    fs::remove_dir(&obstacle).expect("the folder is removed");
    assert!(!client.run("BGSAVE").is_error());
    all_are_granted(locks).hold_at(&mut client);
}

#[test]
fn locks_are_granted_when_shutdown_is_aborted() {
    let mut master = master("shutdown-timeout 60");
    let replica = replica_of(&master);
    let mut alice = master.client();
    assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 600000"), 1);
    let mut waiters = Way::ALL.map(|way| way.start(&master, &format!("LOCK.ACQUIRE door {way:?} BLOCK 0")));
    let locks = Staggered::start(&master, "", 20, 15);
    let process = Process::of(&replica);
    process.stop();
    alice.ok("SET other x");
    let mut leaver = master.client();
    leaver.send(&["SHUTDOWN", "NOSAVE"]);
    eventually("the shutdown waits", || alice.info("server", "shutdown_in_milliseconds").is_some());
    grants_nothing(&mut alice, &locks);
    alice.ok("SHUTDOWN ABORT");
    let outcomes = all_are_granted(locks);

    alice.send(&["SHUTDOWN", "NOSAVE"]);
    process.resume();
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), Reply::Closed));
    master.wait_for_end();
    outcomes.hold_at(&mut replica.client());
}
