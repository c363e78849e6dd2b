//! The shares of one lock are returned to many sessions in batches. Until all are returned, no other token is granted a share. A
//! request of an owner returns its own share early.

use redis_lock::server::{Node, Reply, WriteFence};

use super::crowd::Stage;

const SHARES: usize = 250;

/// The number of shares that one batch returns.
const BATCH: usize = redis_lock::core::MAX_SHARE_BATCH;

/// One connection has all shares of the door, each with a session. Bob waits for a share. All leases have ended while the server
/// stalled, and the first batch has been returned.
fn after_first_iteration() -> Stage {
    let stage = Stage::start();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} LIMIT {SHARES} PX 10000 SESSION"));
    let bob = format!("LOCK.SHARE door bob LIMIT {SHARES} PX 60000 BLOCK 0 NOTIFY news");
    stage.run(stage.alice, &bob);
    Node::pass_us(20_000_000);
    for _ in 0..200 {
        // After a stall the module suspends its writes for a second.
        Node::pass_us(10_000);
        stage.node.turn();
        if stage.shares("door").len() == BATCH {
            return stage;
        }
    }
    panic!("{} shares", stage.shares("door").len());
}

fn has(stage: &Stage, token: &str) -> bool {
    stage.shares("door").iter().any(|other| other == token)
}

#[test]
fn all_shares_are_returned_before_next_grant() {
    let stage = after_first_iteration();
    for batches in 1.. {
        assert!(batches < 10 && stage.shares("door").len() >= (batches * BATCH).min(SHARES) && !has(&stage, "bob"));
        if stage.shares("door").len() == SHARES {
            break;
        }
        stage.node.turn();
    }
    stage.settle();
    assert_eq!((stage.count("sessions"), stage.waiters()), (SHARES as u64, 1));
    stage.run(stage.asker, "LOCK.RELEASE door a0007");
    assert!(has(&stage, "bob"));
    stage.pass(30_000);
    assert_eq!(stage.shares("door").len(), SHARES, "each is renewed");
}

#[test]
fn request_of_owner_returns_its_share_early() {
    let stage = after_first_iteration();
    assert!(!has(&stage, "a0240"));
    assert_eq!(stage.ask(stage.asker, "LOCK.EXTEND door a0240 PX 30000"), Reply::Integer(30000));
    let stage = after_first_iteration();
    assert_eq!(stage.ask(stage.asker, "LOCK.SHARE door a0240 LIMIT 1 PX 10000 SESSION"), Reply::Integer(1));
    let stage = after_first_iteration();
    assert_eq!(stage.ask(stage.asker, "LOCK.RELEASE door a0240"), Reply::Integer(0));
    stage.settle();
    assert!(has(&stage, "bob") && !has(&stage, "a0240"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64 - 1));
}

#[test]
fn other_request_is_refused_during_return() {
    let stage = after_first_iteration();
    let asked = stage.ask(stage.alice, &format!("LOCK.SHARE door carol LIMIT {SHARES} PX 60000"));
    assert_eq!(asked, Reply::Nil);
    assert_eq!(stage.ask(stage.alice, "LOCK.ACQUIRE door carol PX 60000"), Reply::Nil);
}

#[test]
fn first_batch_may_be_released_before_return_ends() {
    let stage = after_first_iteration();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    for token in stage.shares("door") {
        stage.send(stage.asker, &format!("LOCK.RELEASE door {token}"));
    }
    stage.node.set_fence(None);
    stage.settle();
    assert!(has(&stage, "bob"));
    assert_eq!(stage.shares("door").len(), SHARES - BATCH + 1);
}

#[test]
fn return_goes_on_after_refused_writes() {
    let stage = after_first_iteration();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    stage.pass(200);
    assert!(stage.shares("door").len() <= 2 * BATCH);
    stage.node.set_fence(None);
    stage.pass(200);
    assert!(!has(&stage, "bob"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64));
}

#[test]
fn closed_connection_ends_return() {
    let stage = after_first_iteration();
    stage.node.hang_up(stage.asker);
    stage.settle();
    assert_eq!((stage.shares("door"), stage.count("sessions")), (vec!["bob".to_owned()], 0));
}

#[test]
fn deleted_lock_ends_return() {
    let stage = after_first_iteration();
    stage.run(stage.alice, "DEL door");
    assert_eq!((stage.shares("door"), stage.count("sessions")), (vec!["bob".to_owned()], 0));
}

#[test]
fn externally_removed_share_is_not_returned() {
    let stage = after_first_iteration();
    let gone = stage.shares("door").remove(0);
    stage.run(stage.alice, &format!("ZREM door {gone}"));
    stage.settle();
    assert!(has(&stage, "bob") && !has(&stage, &gone));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64 - 1));
}

#[test]
fn return_begins_again_after_second_stall() {
    let stage = after_first_iteration();
    Node::pass_us(20_000_000);
    stage.pass(2000);
    assert!(!has(&stage, "bob"));
    assert_eq!((stage.shares("door").len(), stage.count("sessions")), (SHARES, SHARES as u64));
}

#[test]
fn share_is_not_returned_early_while_suspended() {
    let stage = after_first_iteration();
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 60000");
    stage.ask(stage.asker, "LOCK.EXTEND door a0240 PX 30000");
    assert!(!has(&stage, "a0240"));
}

#[test]
fn expired_share_does_not_block_lock_with_sessions() {
    let stage = Stage::start();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} LIMIT 300 PX 60000 SESSION"));
    stage.run(stage.alice, "ZADD door 1 passed");
    stage.send(stage.alice, "LOCK.SHARE door bob LIMIT 300 PX 60000");
    assert_eq!(stage.ask(stage.asker, "LOCK.SHARE door carol LIMIT 300 PX 60000"), Reply::Integer(1));
}

#[test]
fn demotion_ends_return() {
    let stage = after_first_iteration();
    stage.node.become_replica();
    stage.settle();
    assert_eq!((stage.count("sessions"), stage.waiters()), (0, 0));
}
