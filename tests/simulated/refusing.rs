//! A server that does not open a key for writing, or refuses to replicate.

use redis_lock::server::{Reply, WriteFence};

use super::stage::{Stage, on_every_kind, received};

/// Returns the value of the lock's key.
fn holder(stage: &Stage) -> Option<String> {
    let keyspace = stage.node.keyspace();
    let entry = keyspace.get(0, b"door")?;
    Some(format!("{:?}", entry.value))
}

/// The lock is held in each of the three forms, and its holder disconnects during a save.
#[test]
fn lock_in_use_is_granted_after_save() {
    for take in ["ACQUIRE", "REENTER", "SHARE"] {
        on_every_kind(|stage, alice, bob| {
            assert_eq!(stage.run(alice, &format!("LOCK.{take} door alice PX 60000 SESSION")), received(alice, 1));
            assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
            let held = holder(stage);
            stage.stream();
            stage.node.save_without_fork(true);
            stage.node.hang_up(alice);
            assert_eq!(stage.wait(500), [], "{take}");
            assert_eq!((holder(stage), stage.stream()), (held, Vec::new()), "{take}: nothing is written");
            stage.node.save_without_fork(false);
            assert_eq!(stage.wait(25), received(bob, 1), "{take}");
            assert!(stage.stream().concat().contains("bob"), "{take}");
        });
    }
}

/// An event has the lock reviewed, and the key is in use before the timer runs.
#[test]
fn review_of_a_lock_in_use_grants_nothing() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 60000"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        stage.node.save_without_fork(true);
        assert_eq!(stage.run(alice, "PEXPIRE door 500"), received(alice, 1));
        stage.stream();
        let held = holder(stage);
        assert_eq!(stage.wait(300), []);
        assert_eq!((holder(stage), stage.stream()), (held, Vec::new()), "nothing is written");
        stage.node.save_without_fork(false);
        assert_eq!(stage.wait(200), []);
        assert_eq!(stage.wait(1), received(bob, 1), "the lease has ended");
    });
}

#[test]
fn session_of_a_lock_in_use_is_renewed_after_the_save() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 600 SESSION"), received(alice, 1));
        stage.stream();
        stage.node.save_without_fork(true);
        assert_eq!(stage.wait(400), []);
        assert_eq!(stage.stream(), [""; 0], "no lease is lengthened");
        stage.node.save_without_fork(false);
        stage.wait(60);
        assert_eq!(stage.stream().len(), 1, "the lease is renewed");
        stage.wait(400);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob"), [(bob, Reply::Nil)]);
    });
}

/// The lock is granted nevertheless, because the next waiter may have been notified. The error is counted.
#[test]
fn refused_replication_is_counted() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 100"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        stage.stream();
        stage.node.refuse_replication(true);
        assert_eq!(stage.wait(101), received(bob, 1));
        assert_eq!(stage.stream().iter().filter(|line| line.contains("bob")).count(), 0);
        assert_eq!(stage.count("replication_errors"), 1);
        stage.node.refuse_replication(false);
        assert_eq!(stage.run(bob, "LOCK.RELEASE door bob"), received(bob, 0));
        assert_eq!(stage.count("replication_errors"), 1);
    });
}

/// While the server refuses writes, the background work runs for other reasons: a wait ends in each millisecond.
#[test]
fn refused_write_is_tried_again_after_pauses() {
    on_every_kind(|stage, alice, bob| {
        stage.each(alice, 50, |number| format!("LOCK.ACQUIRE door{number} alice PX 60000 SESSION"));
        assert_eq!((stage.count("sessions"), stage.run(bob, "LOCK.ACQUIRE gate x")), (50, received(bob, 1)));
        stage.run(stage.listener, "SSUBSCRIBE news");
        for ms in 1..=400 {
            let waits = format!("LOCK.ACQUIRE gate bob{ms} PX 1000 BLOCK {ms} NOTIFY news");
            assert_eq!(stage.run(bob, &waits), [(bob, Reply::Status("WAITING"))]);
        }
        stage.node.set_fence(Some(WriteFence::NoReplicas));
        let before = stage.node.probes();
        stage.node.hang_up(alice);
        stage.wait(402);
        let probes = stage.node.probes() - before;
        assert!((5..=21).contains(&probes), "{probes} in 400 ms, with pauses of 20 ms or more");
        assert_eq!(stage.count("timed_out"), 400);
        stage.node.set_fence(None);
        stage.wait(81);
        assert_eq!(stage.run(bob, "EXISTS door0 door49"), received(bob, 0), "the sessions have ended");
    });
}

/// The clock is set back while a retry is scheduled.
#[test]
fn retried_review_survives_clock_step() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 100"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        stage.node.set_fence(Some(WriteFence::NoReplicas));
        assert_eq!(stage.wait(150), []);
        stage.node.step_clock(-600_000);
        stage.node.set_fence(None);
        assert_eq!(stage.run(alice, "EXISTS door"), received(alice, 0), "the lock is free");
        assert_eq!(stage.wait(5000), received(bob, 1));
    });
}

/// The same for the lock of a closed connection.
#[test]
fn retried_revocation_survives_clock_step() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 60000 SESSION"), received(alice, 1));
        stage.node.set_fence(Some(WriteFence::NoReplicas));
        stage.node.hang_up(alice);
        assert_eq!(stage.wait(150), []);
        stage.node.step_clock(-600_000);
        stage.node.set_fence(None);
        assert_eq!(stage.wait(5000), []);
        assert_eq!(stage.run(bob, "EXISTS door"), received(bob, 0));
    });
}

/// The revocation was postponed before the server refused it.
#[test]
fn postponed_revocation_survives_clock_step() {
    on_every_kind(|stage, alice, bob| {
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 60000 SESSION"), received(alice, 1));
        stage.node.save_without_fork(true);
        stage.node.hang_up(alice);
        assert_eq!(stage.wait(50), []);
        stage.node.set_fence(Some(WriteFence::NoReplicas));
        stage.node.save_without_fork(false);
        assert_eq!(stage.wait(150), []);
        stage.node.step_clock(-600_000);
        stage.node.set_fence(None);
        assert_eq!(stage.wait(5000), []);
        assert_eq!(stage.run(bob, "EXISTS door"), received(bob, 0));
    });
}
