//! The work for sessions and shares in one iteration of the event loop.

use redis_lock::server::{Node, ServerKind};

use super::{FEW, MANY, command_does_not_grow, does_not_grow, end_of_all_does_not_grow};
use crate::stage::Stage;

/// One connection has `count` sessions, each with another lock.
fn lock_each(stage: &Stage, count: usize) {
    stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} a PX 600000 SESSION"));
}

/// One connection has `count` shares of the door, with a session each.
fn share_one(stage: &Stage, count: usize, px: i64) {
    stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX {px} SESSION"));
}

#[test]
fn connection_with_sessions_closes() {
    let close = |stage: &Stage| stage.node.hang_up(stage.asker);
    end_of_all_does_not_grow("sessions", lock_each, close);
    end_of_all_does_not_grow("sessions of shares", |stage, count| share_one(stage, count, 600_000), close);
}

/// The checks of sessions and of locks skip the slots of many that have ended in one step.
#[test]
fn check_of_few_sessions_after_many_ended() {
    let longest = |count| {
        let stage = Stage::start();
        lock_each(&stage, count);
        stage.each(stage.alice, count - 1, |number| format!("LOCK.RELEASE lock{number} a"));
        assert_eq!(stage.count("sessions"), 1);
        stage.send(stage.asker, "FLUSHDB");
        stage.settle()
    };
    let [few, many] = [FEW, MANY].map(longest);
    println!("a check of one session: {few} steps after {FEW}, {many} after {MANY}");
    assert!(many - few <= (MANY - FEW) / 25, "{few} steps after {FEW}, {many} after {MANY}");
}

#[test]
fn shared_lock_is_deleted() {
    let shares = |stage: &Stage, count: usize| share_one(stage, count, 600_000);
    end_of_all_does_not_grow("a deleted shared lock", shares, |stage| stage.send(stage.alice, "DEL door"));
}

/// Valkey sends `expired` for an expiry time in the past, and no lease has ended by itself.
#[test]
fn shared_lock_is_expired_by_a_command() {
    does_not_grow("an expired shared lock", |_, count| {
        let stage = Stage::start_on(ServerKind::Valkey9);
        share_one(&stage, count, 600_000);
        stage.send(stage.alice, "PEXPIRE door -1");
        let longest = stage.settle().max(stage.pass(1000));
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

#[test]
fn shares_are_returned() {
    for held in [0, 1] {
        does_not_grow("shares that are returned", |stage, count| {
            stage.each(stage.alice, held, |_| "LOCK.SHARE door alice PX 600000".to_owned());
            share_one(stage, count, 10_000);
            Node::pass_us(20_000_000);
            let longest = stage.pass(2000);
            assert_eq!((stage.shares("door").len(), stage.count("sessions")), (count + held, count as u64));
            longest
        });
    }
}

#[test]
fn request_for_lock_with_expired_shares() {
    command_does_not_grow("LOCK.INFO door", |stage, count| {
        stage.run(stage.alice, "LOCK.SHARE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 100"));
        Node::pass_us(1_000_000);
        stage.settle();
    });
}

#[test]
fn request_for_shares_while_grants_are_suspended() {
    command_does_not_grow("LOCK.ACQUIRE door alice PX 1000", |stage, count| {
        share_one(stage, count, 2000);
        stage.run(stage.alice, "CONFIG SET lock.recovery-ms 20000");
        Node::pass_us(5_000_000);
        stage.settle();
        // The first request after the stall is not measured.
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 1000");
    });
}

#[test]
fn share_is_removed_externally() {
    command_does_not_grow("ZREM door a7", |stage, count| share_one(stage, count, 600_000));
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
    let stage = Stage::start();
    stage.each(stage.asker, MANY, |number| format!("LOCK.ACQUIRE lock{number} a PX 200 SESSION"));
    stage.run(stage.alice, "SELECT 1");
    for _ in 0..300 {
        Node::pass_us(1000);
        stage.send(stage.alice, "FLUSHDB");
        stage.node.turn();
    }
    let now = stage.node.now_ms();
    let held = stage.node.keyspace().of(0).filter(|(_, entry)| !entry.is_over(now)).count();
    assert_eq!(held, MANY);
}
