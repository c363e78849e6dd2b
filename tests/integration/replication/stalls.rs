//! A master that was replaced while it stalled. A scenario cannot act during a stall.

use std::thread;
use std::time::{Duration, Instant};

use support::cluster::Cluster;
use support::parallel::for_each;
use support::process::Process;
use support::replicas::{in_time, is_master, master, replica_of, replicated};
use support::staggered::Staggered;
use support::{LOST, Reply, Server, Waiter, info_lock, never_within};

/// Longer than the shortest stall that suspends the module, and than a replica may be silent with a lag of a second.
const STALL: Duration = Duration::from_millis(2200);

/// Stops the server for this time and runs `action`.
#[track_caller]
fn stall(server: &Server, action: impl FnOnce()) {
    let process = Process::of(server);
    process.stop();
    let stopped = Instant::now();
    action();
    thread::sleep(STALL.saturating_sub(stopped.elapsed()));
    process.resume();
}

/// DEBUG RELOAD stalls the event loop. One that takes almost a second, because the disk is busy, suspends grants for 1.2 seconds; one that is
/// shorter suspends none.
#[test]
fn short_reload_suspends_no_grant() {
    let server = Server::start();
    let mut client = server.client();
    let delay_after_short_reload = || {
        assert_eq!(client.run("LOCK.ACQUIRE door alice PX 60000"), 1);
        let mut waiter = Waiter::start(&server, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0");
        let (before, granted) = (Instant::now(), |waiter: &mut Waiter| waiter.reply() == 1);
        client.ok("DEBUG RELOAD");
        client.run("DEL door");
        let (deleted, was_short) = (Instant::now(), before.elapsed() < Duration::from_millis(800));
        assert!(granted(&mut waiter), "the waiter gets the lock");
        client.run("DEL door");
        was_short.then(|| deleted.elapsed())
    };
    let delay = std::iter::repeat_with(delay_after_short_reload).take(20).flatten().next();
    let delay = delay.expect("a reload of less than a second");
    assert!(delay < Duration::from_millis(900), "granted {delay:?} after DEL");
}

/// The master needs one responding replica for writes. When it resumes, it does not know yet that it has none.
#[test]
fn master_whose_replica_was_promoted_grants_nothing() {
    for_each(&Staggered::FORMS, |start| {
        let old = master("min-replicas-to-write 1\nmin-replicas-max-lag 1");
        let replica = replica_of(&old);
        let mut client = old.client();
        in_time("the master takes writes", || !client.run("SET other x").is_error());
        // The leases end during the stall, and the first not before it, however busy the machine is.
        let locks = start(&old, "", 8, 250);
        stall(&old, || {
            replica.client().ok("REPLICAOF NO ONE");
            assert!(is_master(&replica));
        });
        let mut refused = false;
        never_within(STALL, "the old master grants", || {
            refused |= client.run("SET other x").is_error();
            info_lock(&mut client, "granted_after_waiting") > 0
        });
        assert!(refused, "it still accepts writes");
        assert_eq!(info_lock(&mut client, "waiters"), 8);
        client.ok("CONFIG SET min-replicas-to-write 0");
        let outcomes = locks.outcomes();
        assert!(outcomes.told.is_empty(), "not granted: {:?}", outcomes.told);
    });
}

#[test]
fn master_of_cluster_that_was_replaced_grants_nothing() {
    let cluster = Cluster::start(1000, "");
    cluster.let_replicas_take_over();
    let (old, new) = (cluster.master(0), cluster.replica(0));
    let tag = cluster.tag_of(0);
    let locks = Staggered::start(old, &tag.name, 4, 1000);
    replicated(&mut old.client(), &tag.key("mark"));
    stall(old, || {
        in_time("the replica is promoted", || is_master(new));
        locks.outlive();
    });
    let outcomes = locks.outcomes();
    assert!(outcomes.granted.is_empty(), "{:?}", outcomes.granted);
    outcomes.told.iter().for_each(|(key, told)| {
        assert!(*told == Reply::Closed || ["UNBLOCKED", "MOVED", LOST].contains(&told.code()), "{key}: {told:?}");
    });
}
