//! The work for sessions and shares in one iteration of the event loop.

use redis_lock::server::Node;

use super::{FEW, MANY, does_not_grow};
use crate::crowd::Stage;

#[test]
fn connection_with_sessions_closes() {
    does_not_grow("sessions", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} a PX 600000 SESSION"));
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

/// A check skips the slots of many sessions that have ended in one step.
#[test]
fn check_of_few_sessions_after_many_ended() {
    let longest = |count| {
        let stage = Stage::start();
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000 SESSION"));
        stage.each(stage.alice, count - 1, |number| format!("LOCK.RELEASE lock{number} alice"));
        assert_eq!(stage.count("sessions"), 1);
        stage.send(stage.asker, "FLUSHDB");
        stage.settle()
    };
    let [few, many] = [FEW, MANY].map(longest);
    println!("a check of one session: {few} steps after {FEW}, {many} after {MANY}");
    assert!(many - few <= (MANY - FEW) / 50, "{few} steps after {FEW}, {many} after {MANY}");
}

#[test]
fn connection_with_shares_of_one_lock_closes() {
    does_not_grow("sessions of shares", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

#[test]
fn shared_lock_is_deleted() {
    does_not_grow("sessions of shares that end together", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.send(stage.alice, "DEL door");
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

#[test]
fn shares_are_returned() {
    does_not_grow("shares that are returned to their sessions", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 10000 SESSION"));
        Node::pass_us(20_000_000);
        let longest = stage.pass(2000);
        assert_eq!((stage.shares("door").len(), stage.count("sessions")), (count, count as u64));
        longest
    });
}

#[test]
fn expired_shares_are_returned_while_one_goes_on() {
    does_not_grow("shares that are returned while another goes on", |stage, count| {
        stage.run(stage.alice, "LOCK.SHARE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 10000 SESSION"));
        Node::pass_us(20_000_000);
        let longest = stage.pass(2000);
        assert_eq!((stage.shares("door").len(), stage.count("sessions")), (count + 1, count as u64));
        longest
    });
}

#[test]
fn request_for_lock_with_expired_shares() {
    does_not_grow("a request for a lock with expired shares", |stage, count| {
        stage.run(stage.alice, "LOCK.SHARE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 100"));
        Node::pass_us(1_000_000);
        stage.settle();
        stage.send(stage.alice, "LOCK.INFO door");
        stage.settle()
    });
}

#[test]
fn share_is_removed_externally() {
    does_not_grow("sessions of a lock that an external command has changed", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.send(stage.alice, "ZREM door a7");
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), count as u64 - 1);
        longest
    });
}

#[test]
fn request_for_shares_while_grants_are_suspended() {
    does_not_grow("a request while grants are suspended", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 2000 SESSION"));
        stage.run(stage.alice, "CONFIG SET lock.recovery-ms 20000");
        Node::pass_us(5_000_000);
        stage.settle();
        // The first request after the stall is not measured.
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 1000");
        stage.send(stage.alice, "LOCK.ACQUIRE door alice PX 1000");
        stage.settle()
    });
}

#[test]
fn shares_of_many_locks_are_rechecked() {
    does_not_grow("shares of many locks that need a recheck", |stage, count| {
        let locks = count / 40;
        stage.each(stage.asker, count, |number| {
            format!("LOCK.SHARE lock{} a{number} PX 600000 SESSION", number % locks)
        });
        (0..locks).for_each(|number| stage.send(stage.alice, &format!("ZREM lock{number} a{number}")));
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), (count - locks) as u64);
        longest
    });
}

/// Sessions are renewed although repeated flushes of another database schedule a check of all of them each time.
#[test]
fn renewals_go_on_during_repeated_flushes() {
    for line in ["PING", "FLUSHDB"] {
        let stage = Stage::start();
        stage.each(stage.asker, MANY, |number| format!("LOCK.ACQUIRE lock{number} a PX 200 SESSION"));
        stage.run(stage.alice, "SELECT 1");
        for _ in 0..300 {
            Node::pass_us(1000);
            stage.send(stage.alice, line);
            stage.node.turn();
        }
        let now = stage.node.now_ms();
        let held = stage.node.keyspace().of(0).filter(|(_, entry)| !entry.is_over(now)).count();
        assert_eq!(held, MANY, "{line} each millisecond");
    }
}
