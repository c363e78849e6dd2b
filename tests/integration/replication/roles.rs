//! Masters that become replicas, replicas that become masters, and masters that may not write for a while: no client is left without
//! a reply, and no lock is granted by a server that may not grant it. Many leases end in each of these moments.

use std::fs;

use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_step, in_time, is_master, master, replica_of, replicated};
use support::staggered::Staggered;
use support::{
    Client, LOST, OBSERVATION, Reply, Server, Setup, Waiting, Way, eventually, info_lock, never_within, now_ms, now_us,
};

/// How late a waiter may be granted its lock, in the best of several attempts: far below the server's own clock tick.
const PUNCTUAL_US: i64 = 5_000;
const ATTEMPTS: usize = 5;

/// How the lock `door` is held and waited for. The first holder is alice.
#[derive(Clone, Copy)]
struct Form {
    holders: &'static [&'static str],
    waiters: &'static [(Way, &'static str)],
    /// The holders that release the lock before the second waiter has it, before the third, and so on.
    releases: &'static [&'static [&'static str]],
    staggered: fn(&Server, &str, i64, i64) -> Staggered,
}

const MUTEX: Form = Form {
    holders: &["LOCK.ACQUIRE door alice PX 600000"],
    waiters: &[(Way::Blocked, "LOCK.ACQUIRE door bob BLOCK 0"), (Way::Notified, "LOCK.ACQUIRE door carol BLOCK 0")],
    releases: &[&["bob"]],
    staggered: Staggered::start,
};

const SHARED: Form = Form {
    holders: &["LOCK.SHARE door alice LIMIT 2 PX 500000", "LOCK.SHARE door zoe LIMIT 2 PX 600000"],
    waiters: &[
        (Way::Blocked, "LOCK.SHARE door bob LIMIT 2 PX 600000 BLOCK 0"),
        (Way::Notified, "LOCK.SHARE door carol LIMIT 2 PX 600000 BLOCK 0"),
        (Way::OnOneConnection, "LOCK.ACQUIRE door dave PX 600000 BLOCK 0"),
    ],
    releases: &[&["zoe"], &["bob", "carol"]],
    staggered: Staggered::start_shared,
};

const FORMS: [Form; 2] = [MUTEX, SHARED];

impl Form {
    #[track_caller]
    fn hold(&self, server: &Server) -> Client {
        let mut client = server.client();
        self.holders.iter().for_each(|line| assert_eq!(client.run(line), 1));
        client
    }

    #[track_caller]
    fn wait(&self, server: &Server) -> Vec<Waiting> {
        self.waiters.iter().map(|(way, line)| way.start(server, line)).collect()
    }

    /// New waiters are granted the lock in their order.
    #[track_caller]
    fn continues_at(&self, server: &Server) {
        let mut client = server.client();
        let mut waiters = self.wait(server);
        assert_eq!(client.run("LOCK.EXTEND door alice PX 50"), 50);
        assert_eq!(waiters[0].reply(), 1, "at the end of alice's lease");
        for (waiter, releases) in waiters[1..].iter_mut().zip(self.releases) {
            for holder in *releases {
                assert!(waiter.waits());
                assert_eq!(client.run(&format!("LOCK.RELEASE door {holder}")), 0);
            }
            assert_eq!(waiter.reply(), 1);
        }
    }
}

/// The value of the lock and the end of its lease.
#[track_caller]
fn contents(client: &mut Client) -> (Reply, i64) {
    (client.run("DUMP door"), client.expires_at("door"))
}

/// The server or the module has ended the wait, because the server is a replica now.
#[track_caller]
fn is_aborted(answer: &Reply) {
    assert!(*answer == Reply::Closed || ["UNBLOCKED", LOST].contains(&answer.code()), "{answer:?}");
}

#[track_caller]
fn are_aborted(waiters: &mut [Waiting]) {
    waiters.iter_mut().for_each(|waiter| is_aborted(&waiter.reply()));
}

/// Returns how many waiters have been granted their lock so far.
#[track_caller]
fn granted(client: &mut Client) -> i64 {
    info_lock(client, "granted_after_waiting")
}

/// Begins a coordinated failover. A new replica is not online for the server at once.
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

/// This many waiters had been granted their lock when the leases began to end at a server that may grant nothing. The others were
/// aborted.
#[track_caller]
fn only_these_were_granted(locks: Staggered, granted_before: i64, new: Option<&Server>) {
    let outcomes = locks.outcomes();
    assert_eq!(i64::try_from(outcomes.granted.len()).unwrap(), granted_before);
    outcomes.told.iter().for_each(|(_, reply)| is_aborted(reply));
    if let Some(new) = new {
        outcomes.hold_at(&mut new.client());
    }
}

/// All waiters are granted their locks.
#[track_caller]
fn all_are_granted(locks: Staggered, client: &mut Client) {
    let outcomes = locks.outcomes();
    assert!(outcomes.told.is_empty(), "not granted: {:?}", outcomes.told);
    outcomes.hold_at(client);
}

#[test]
fn exchanged_roles_abort_waits_and_keep_leases() {
    for_each(&FORMS, |form| {
        let old = master("");
        let new = replica_of(&old);
        let mut control = form.hold(&old);
        let mut waiters = form.wait(&old);
        let locks = (form.staggered)(&old, "", 30, 15);
        replicated(&mut control, "mark");
        let before = contents(&mut control);

        old.client().ok(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
        are_aborted(&mut waiters);
        let mut on_old = old.client();
        let granted_before = granted(&mut on_old);
        locks.outlive();
        only_these_were_granted(locks, granted_before, None);
        assert_eq!(info_lock(&mut on_old, "waiters"), 0);
        never_within(OBSERVATION, "a replica grants", || granted(&mut on_old) > granted_before);

        let mut on_new = new.client();
        on_new.ok("REPLICAOF NO ONE");
        in_step(&old);
        assert_eq!(contents(&mut on_new), before);
        form.continues_at(&new);
        eventually("the hand-over arrives", || contents(&mut on_old) == contents(&mut on_new));
    });
}

#[test]
fn failover_while_leases_end_loses_no_grant() {
    for_each(&FORMS, |form| {
        let old = master("");
        let new = replica_of(&old);
        let mut control = form.hold(&old);
        let before = contents(&mut control);
        let locks = (form.staggered)(&old, "", 60, 3);
        eventually("the first is granted", || granted(&mut control) > 0);
        begin_failover(&mut control, &new);
        in_time("the replica is promoted", || is_master(&new));
        let outcomes = locks.outcomes();
        outcomes.told.iter().for_each(|(_, reply)| is_aborted(reply));
        outcomes.hold_at(&mut new.client());
        assert_eq!(contents(&mut new.client()), before);
        form.continues_at(&new);
    });
}

#[test]
fn old_master_grants_nothing_during_failover() {
    for_each(&FORMS, |form| {
        let old = master("");
        let new = replica_of(&old);
        let mut control = form.hold(&old);
        let before = contents(&mut control);
        let mut waiters = form.wait(&old);
        let locks = (form.staggered)(&old, "", 30, 15);
        let replica = failover_that_hangs(&old, &new);
        let granted_before = granted(&mut control);
        locks.outlive();
        never_within(OBSERVATION, "the old master grants", || granted(&mut control) > granted_before);
        assert!(waiters.iter_mut().all(Waiting::waits));

        replica.resume();
        are_aborted(&mut waiters);
        in_time("the replica is promoted", || is_master(&new));
        only_these_were_granted(locks, granted_before, Some(&new));
        assert_eq!(contents(&mut new.client()), before);
        form.continues_at(&new);
        in_step(&old);
        assert_eq!(old.client().run("LOCK.ACQUIRE gate alice").code(), "READONLY");
    });
}

#[test]
fn locks_are_granted_when_failover_is_aborted() {
    for_each(&FORMS, |form| {
        let old = master("");
        let new = replica_of(&old);
        let locks = (form.staggered)(&old, "", 20, 15);
        let mut client = old.client();
        let replica = failover_that_hangs(&old, &new);
        let granted_before = granted(&mut client);
        locks.outlive();
        assert_eq!(granted(&mut client), granted_before);
        client.ok("FAILOVER ABORT");
        let outcomes = locks.outcomes();
        assert_eq!(outcomes.granted.len(), 20, "not granted: {:?}", outcomes.told);
        replica.resume();
        in_step(&new);
        replicated(&mut client, "mark");
        outcomes.hold_at(&mut new.client());
    });
}

#[test]
fn promoted_replica_grants_on_time() {
    let mut late_us = Vec::new();
    for _ in 0..ATTEMPTS {
        let master = master("");
        let replica = replica_of(&master);
        let mut alice = master.client();
        assert_eq!(alice.run("LOCK.ACQUIRE door alice PX 1200"), 1);
        let lease_end = alice.expires_at("door");
        assert_eq!(alice.run("WAIT 1 5000"), 1);
        replica.client().ok("REPLICAOF NO ONE");
        let mut bob = Way::Notified.start(&replica, "LOCK.ACQUIRE door bob BLOCK 0");
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

/// Returns a server, and the one replica without which it does not want to write.
fn master_that_needs_a_replica() -> (Server, Server) {
    let master = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
    let replica = replica_of(&master);
    let mut client = master.client();
    in_time("the master takes writes", || !client.run("SET other x").is_error());
    (master, replica)
}

/// While the server refuses writes with this error, nothing is granted although leases end.
#[track_caller]
fn grants_nothing_while_refused(client: &mut Client, locks: &Staggered, code: &str) {
    in_time("writes are refused", || client.run("SET other x").is_error());
    let granted_before = granted(client);
    assert_eq!(client.run("LOCK.ACQUIRE new alice").code(), code);
    assert_ne!(info_lock(client, "waiters"), 0, "no lease is left to end");
    locks.outlive();
    never_within(OBSERVATION, "a lock is granted", || granted(client) > granted_before);
}

/// The connection of a session closes in this time, too. Its lock is released afterwards.
#[test]
fn master_grants_nothing_while_replica_is_stopped() {
    for_each(&FORMS, |form| {
        let (master, replica) = master_that_needs_a_replica();
        let [mut holder, mut client] = [(); 2].map(|()| master.client());
        let lines = form.holders.iter().map(|line| line.replace("alice", "alice SESSION"));
        lines.for_each(|line| assert_eq!(holder.run(&line), 1));
        let mut bob = form.waiters[0].0.start(&master, form.waiters[0].1);
        let locks = (form.staggered)(&master, "", 60, 70);
        let before = contents(&mut client).0;
        let process = Process::of(&replica);
        process.stop();
        in_time("writes are refused", || client.run("SET other x").is_error());
        drop(holder);
        grants_nothing_while_refused(&mut client, &locks, "NOREPLICAS");
        assert!(bob.waits());
        assert_eq!(contents(&mut client).0, before);
        process.resume();
        all_are_granted(locks, &mut client);
        assert_eq!(bob.reply(), 1);
    });
}

#[test]
fn master_grants_nothing_between_replicas() {
    let (master, mut replica) = master_that_needs_a_replica();
    let locks = Staggered::start(&master, "", 20, 20);
    Process::kill(&mut replica);
    let mut client = master.client();
    grants_nothing_while_refused(&mut client, &locks, "NOREPLICAS");
    let _another = replica_of(&master);
    all_are_granted(locks, &mut client);
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
    all_are_granted(locks, &mut client);
}

#[test]
fn pause_of_all_commands_delays_grants_only() {
    const PAUSE_MS: i64 = 600;
    for_each(&FORMS, |form| {
        let master = master("appendonly yes");
        let replica = replica_of(&master);
        let mut control = form.hold(&master);
        let mut waiters = form.wait(&master);
        let locks = (form.staggered)(&master, "", 20, 15);
        let mut timed_out = Way::ALL.map(|way| way.start(&master, &format!("LOCK.ACQUIRE door {way:?} BLOCK 150")));
        let paused_until = now_ms() + PAUSE_MS;
        control.ok(&format!("CLIENT PAUSE {PAUSE_MS} ALL"));
        timed_out.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), Reply::Nil));
        locks.outlive();
        assert!(now_ms() < paused_until, "the waits and the leases have ended in the pause");
        let outcomes = locks.outcomes();
        assert!(now_ms() >= paused_until, "nothing was granted in the pause");
        assert!(outcomes.told.is_empty(), "not granted: {:?}", outcomes.told);
        assert_eq!(control.run("LOCK.RELEASE door alice"), 0);
        assert_eq!(waiters[0].reply(), 1);
        assert!(waiters[1..].iter_mut().all(Waiting::waits));
        assert_eq!(control.run("WAIT 1 5000"), 1);
        outcomes.hold_at(&mut replica.client());
    });
}

#[test]
fn locks_are_granted_when_shutdown_is_aborted() {
    let mut master = master("shutdown-timeout 60");
    let replica = replica_of(&master);
    let mut alice = MUTEX.hold(&master);
    let mut waiters = MUTEX.wait(&master);
    let locks = Staggered::start(&master, "", 20, 15);
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
    assert!(outcomes.told.is_empty(), "not granted: {:?}", outcomes.told);

    alice.send(&["SHUTDOWN", "NOSAVE"]);
    process.resume();
    waiters.iter_mut().for_each(|waiter| assert_eq!(waiter.reply(), Reply::Closed));
    master.wait_for_end();
    outcomes.hold_at(&mut replica.client());
}
