//! Sessions of shares are renewed while the shares of their lock are returned, in many batches.

use redis_lock::server::{ClientId, Node, Value, WriteFence};

use super::crowd::Stage;

/// Shares of the door with sessions of one connection.
const SHARES: usize = 250;

/// The remaining lease of a share of the door, in milliseconds, or a negative number if it has none.
fn remaining_ms(stage: &Stage, token: &str) -> i64 {
    let keyspace = stage.node.keyspace();
    let members = match keyspace.get(0, b"door").map(|entry| &entry.value) {
        Some(Value::SortedSet(members)) => members,
        _ => return -1,
    };
    members.get(token.as_bytes()).map_or(-1, |score| score.0 as i64 - stage.node.now_ms())
}

/// All leases have ended while the server stalled, and the first batch of shares has been returned.
fn first_batch_is_returned(stage: &Stage, zed: ClientId, lease_ms: i64) {
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} PX {lease_ms} SESSION"));
    stage.run(zed, &format!("LOCK.SHARE door z PX {lease_ms} SESSION"));
    Node::pass_us(lease_ms * 2000);
    for _ in 0..4000 {
        Node::pass_us(10_000);
        stage.node.turn();
        // The members that have expired are there until the server removes the key.
        if (1..=100).contains(&stage.shares("door").len()) {
            break;
        }
    }
    assert_eq!(stage.shares("door").len(), 100);
}

#[test]
fn refused_writes_lose_no_renewal() {
    let stage = Stage::start();
    let zed = stage.node.connect();
    first_batch_is_returned(&stage, zed, 10_000);
    stage.send(zed, "LOCK.EXTEND door z PX 3000");
    stage.node.turn();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    stage.pass(1500);
    stage.node.set_fence(None);
    stage.pass(200);
    assert_eq!(stage.shares("door").len(), SHARES + 1);
    stage.node.hang_up(stage.asker);
    stage.pass(1000);
    assert!(remaining_ms(&stage, "z") > 1000, "{} ms", remaining_ms(&stage, "z"));
}

#[test]
fn expired_members_lose_no_renewal() {
    let stage = Stage::start();
    let zed = stage.node.connect();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} PX 600000 SESSION"));
    stage.each(stage.alice, 3500, |number| format!("LOCK.SHARE door p{number} PX 500"));
    stage.run(zed, "LOCK.SHARE door z PX 3000 SESSION");
    Node::pass_us(999_000);
    stage.send(stage.alice, "LOCK.SHARE door q PX 600000");
    for _ in 0..600 {
        stage.node.turn();
        stage.node.event_log();
        stage.node.stream();
        assert!(remaining_ms(&stage, "z") > 1900, "{} ms", remaining_ms(&stage, "z"));
        Node::pass_us(5000);
    }
}

#[test]
fn return_goes_on_after_grants_were_suspended() {
    let stage = Stage::start();
    let zed = stage.node.connect();
    stage.node.become_replica();
    stage.node.become_master();
    stage.settle();
    stage.run(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.pass(2000);
    first_batch_is_returned(&stage, zed, 60_000);
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 60000000");
    for _ in 0..5 {
        stage.node.turn();
        Node::pass_us(10_000);
    }
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.send(stage.asker, "LOCK.EXTEND door a0100 PX 3600000");
    stage.pass(15_000);
    assert_eq!(stage.shares("door").len(), SHARES + 1);
}
