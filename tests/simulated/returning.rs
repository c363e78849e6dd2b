//! The shares of one lock are returned to many sessions in batches. Until all are returned, no other token is granted a share. A
//! request of an owner returns its own share early, and no session loses its renewal in this time.

use redis_lock::server::{ClientId, Node, Reply, Value, WriteFence};

use super::stage::Stage;

const SHARES: usize = 250;

/// The number of shares that one batch returns.
const BATCH: usize = redis_lock::core::limits::MAX_BATCH;

/// One connection has all shares of the door, each with a session, and zed may have one more. Bob waits for a share. All leases have
/// ended while the server stalled, and the first batch has been returned.
fn return_begins(stage: &Stage, lease_ms: i64, zed: Option<ClientId>) {
    stage.each(stage.asker, SHARES, |number| {
        format!("LOCK.SHARE door a{number:04} LIMIT {SHARES} PX {lease_ms} SESSION")
    });
    if let Some(zed) = zed {
        stage.run(zed, &format!("LOCK.SHARE door zed PX {lease_ms} SESSION"));
    }
    stage.run(stage.alice, &format!("LOCK.SHARE door bob LIMIT {SHARES} PX 60000 BLOCK 0 NOTIFY news"));
    Node::pass_us(lease_ms * 2000);
    pass_first_batch(stage);
}

/// Lets time pass until the first batch of the shares of the door has been returned.
fn pass_first_batch(stage: &Stage) {
    let is_first_batch = |_: &usize| {
        // After a stall the module suspends its writes for a second.
        Node::pass_us(10_000);
        stage.turn();
        stage.shares("door").len() == BATCH
    };
    assert!((0..4000).find(is_first_batch).is_some(), "{} shares", stage.shares("door").len());
}

fn during_return() -> Stage {
    let stage = Stage::start();
    return_begins(&stage, 10_000, None);
    stage
}

fn has(stage: &Stage, token: &str) -> bool {
    stage.shares("door").iter().any(|other| other == token)
}

/// Checks the number of shares and sessions, and whether bob has a share.
#[track_caller]
fn counts(stage: &Stage, shares: usize, sessions: usize, has_bob: bool) {
    let now = (stage.shares("door").len(), stage.count("sessions") as usize, has(stage, "bob"));
    assert_eq!(now, (shares, sessions, has_bob));
}

#[test]
fn all_shares_are_returned_before_next_grant() {
    let stage = during_return();
    for batches in 1.. {
        assert!(batches < 10 && stage.shares("door").len() >= (batches * BATCH).min(SHARES) && !has(&stage, "bob"));
        if stage.shares("door").len() == SHARES {
            break;
        }
        stage.turn();
    }
    stage.settle();
    assert_eq!(stage.waiters(), 1);
    stage.run(stage.asker, "LOCK.RELEASE door a0007");
    stage.pass(30_000);
    counts(&stage, SHARES, SHARES - 1, true);
}

#[test]
fn request_of_owner_returns_its_share_early() {
    let stage = during_return();
    assert!(!has(&stage, "a0240"));
    assert_eq!(stage.ask(stage.asker, "LOCK.EXTEND door a0240 PX 30000"), Reply::Integer(30000));
    let stage = during_return();
    assert_eq!(stage.ask(stage.asker, "LOCK.SHARE door a0240 LIMIT 1 PX 10000 SESSION"), Reply::Integer(1));
    let stage = during_return();
    assert_eq!(stage.ask(stage.asker, "LOCK.RELEASE door a0240"), Reply::Integer(0));
    stage.settle();
    counts(&stage, SHARES, SHARES - 1, true);
}

#[test]
fn other_request_is_refused_during_return() {
    let stage = during_return();
    for line in [&format!("LOCK.SHARE door carol LIMIT {SHARES} PX 60000"), "LOCK.ACQUIRE door carol PX 60000"] {
        assert_eq!(stage.ask(stage.alice, line), Reply::Nil);
    }
}

#[test]
fn first_batch_may_be_released_before_return_ends() {
    let stage = during_return();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    for token in stage.shares("door") {
        stage.send(stage.asker, &format!("LOCK.RELEASE door {token}"));
    }
    stage.node.set_fence(None);
    stage.settle();
    counts(&stage, SHARES - BATCH + 1, SHARES - BATCH, true);
}

#[test]
fn end_of_sessions_ends_return() {
    for end in ["close", "DEL door", "demotion"] {
        let stage = during_return();
        match end {
            "close" => stage.node.hang_up(stage.asker),
            "demotion" => stage.node.become_replica(),
            line => stage.send(stage.alice, line),
        }
        stage.settle();
        assert_eq!((stage.count("sessions"), stage.waiters()), (0, 0), "{end}");
    }
}

#[test]
fn externally_removed_share_is_not_returned() {
    let stage = during_return();
    let gone = stage.shares("door").remove(0);
    stage.run(stage.alice, &format!("ZREM door {gone}"));
    counts(&stage, SHARES, SHARES - 1, true);
    assert!(!has(&stage, &gone));
}

#[test]
fn return_begins_again_after_second_stall() {
    let stage = during_return();
    Node::pass_us(20_000_000);
    stage.pass(2000);
    counts(&stage, SHARES, SHARES, false);
}

#[test]
fn share_is_not_returned_early_while_suspended() {
    let stage = during_return();
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

/// Returns the remaining lease of zed's share in milliseconds, or a negative number if it has none.
fn lease_of_zed(stage: &Stage) -> i64 {
    let keyspace = stage.node.keyspace();
    match keyspace.get(0, b"door").map(|entry| &entry.value) {
        Some(Value::SortedSet(members)) => {
            members.get(b"zed".as_slice()).map_or(-1, |score| score.0 as i64 - stage.node.now_ms())
        }
        _ => -1,
    }
}

#[test]
fn refused_writes_lose_no_renewal() {
    let stage = Stage::start();
    let zed = stage.node.connect();
    return_begins(&stage, 10_000, Some(zed));
    stage.send(zed, "LOCK.EXTEND door zed PX 3000");
    stage.turn();
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    stage.pass(1500);
    stage.node.set_fence(None);
    stage.pass(200);
    counts(&stage, SHARES + 1, SHARES + 1, false);
    stage.node.hang_up(stage.asker);
    stage.pass(1000);
    assert!(lease_of_zed(&stage) > 1000, "{} ms", lease_of_zed(&stage));
}

#[test]
fn expired_members_lose_no_renewal() {
    let stage = Stage::start();
    stage.each(stage.asker, SHARES, |number| format!("LOCK.SHARE door a{number:04} PX 600000 SESSION"));
    stage.each(stage.alice, 3500, |number| format!("LOCK.SHARE door p{number} PX 500"));
    stage.run(stage.node.connect(), "LOCK.SHARE door zed PX 3000 SESSION");
    Node::pass_us(999_000);
    stage.send(stage.alice, "LOCK.SHARE door q PX 600000");
    for _ in 0..600 {
        stage.turn();
        assert!(lease_of_zed(&stage) > 1900, "{} ms", lease_of_zed(&stage));
        Node::pass_us(5000);
    }
}

#[test]
fn return_goes_on_after_grants_were_suspended() {
    let stage = Stage::start();
    stage.node.become_replica();
    stage.node.become_master();
    stage.settle();
    stage.run(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.pass(2000);
    return_begins(&stage, 60_000, Some(stage.node.connect()));
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 60000000");
    for _ in 0..5 {
        stage.turn();
        Node::pass_us(10_000);
    }
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.send(stage.asker, "LOCK.EXTEND door a0100 PX 3600000");
    stage.pass(15_000);
    counts(&stage, SHARES + 1, SHARES + 1, false);
}

fn count_of(stage: &Stage, first: char) -> usize {
    stage.shares("door").iter().filter(|token| token.starts_with(first)).count()
}

/// A hundred shares of a connection that has just closed are the first to be returned after a stall.
#[test]
fn closed_batch_of_shares_ends_no_open_session() {
    let stage = Stage::start();
    let open = stage.node.connect();
    stage.each(open, 50, |n| format!("LOCK.SHARE door b{n:04} PX 10000 SESSION"));
    stage.each(stage.asker, 100, |n| format!("LOCK.SHARE door a{n:04} PX 10000 SESSION"));
    Node::pass_us(20_000_000);
    stage.node.hang_up(stage.asker);
    stage.pass(3000);
    assert_eq!((stage.count("sessions"), count_of(&stage, 'b')), (50, 50));
}

/// Gives a connection the last of 101 shares, behind a whole batch of those of another one. Returns the connection.
fn share_after_batch(stage: &Stage, options: &str) -> ClientId {
    let zed = stage.node.connect();
    stage.each(stage.asker, BATCH, |n| format!("LOCK.SHARE door a{n:04} PX 30000 SESSION"));
    stage.run(zed, &format!("LOCK.SHARE door zed PX 30000 SESSION {options}"));
    zed
}

/// The last share that is to be returned leaves with its connection.
#[test]
fn close_of_last_share_to_return_frees_capacity() {
    let stage = Stage::start();
    let zed = share_after_batch(&stage, "");
    stage.run(stage.alice, "LOCK.SHARE door bob LIMIT 101 PX 60000 BLOCK 0 NOTIFY news");
    Node::pass_us(60_000_000);
    pass_first_batch(&stage);
    stage.node.hang_up(zed);
    let since = stage.node.now_ms();
    let is_granted = |_: &usize| {
        stage.pass(10);
        has(&stage, "bob")
    };
    assert!((0..5000).find(is_granted).is_some(), "never");
    let waited = stage.node.now_ms() - since;
    assert!(waited < 1000, "bob waits {waited} ms for a share that is free");
}

/// The same with a grace period.
#[test]
fn last_share_to_return_keeps_its_grace_period() {
    let stage = Stage::start();
    let zed = share_after_batch(&stage, "GRACE 20000");
    Node::pass_us(60_000_000);
    pass_first_batch(&stage);
    stage.node.hang_up(zed);
    stage.pass(1000);
    assert!(has(&stage, "zed"), "the share is not held in its grace period");
}

/// The share of zed is neither in the key nor to be scanned when the return ends. Bob may not have its permit.
#[test]
fn share_to_return_for_grace_counts() {
    let stage = Stage::start();
    let zed = share_after_batch(&stage, "GRACE 20000");
    Node::pass_us(60_000_000);
    pass_first_batch(&stage);
    stage.send(stage.alice, "LOCK.SHARE door bob LIMIT 101 PX 60000 BLOCK 0 NOTIFY news");
    stage.node.hang_up(zed);
    stage.pass(1000);
    assert_eq!((has(&stage, "zed"), has(&stage, "bob"), stage.shares("door").len()), (true, false, 101));
}

/// The same while grants are suspended.
#[test]
fn suspended_share_to_return_for_grace_counts() {
    let stage = Stage::start();
    stage.node.become_replica();
    stage.node.become_master();
    stage.settle();
    stage.run(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.pass(2000);
    let zed = share_after_batch(&stage, "GRACE 20000");
    stage.run(stage.alice, "LOCK.SHARE door bob LIMIT 101 PX 60000 BLOCK 0 NOTIFY news");
    Node::pass_us(60_000_000);
    pass_first_batch(&stage);
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 60000000");
    stage.turn();
    stage.node.hang_up(zed);
    stage.pass(1000);
    assert!(!has(&stage, "zed") && !has(&stage, "bob"));
    stage.send(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.pass(1000);
    assert!(has(&stage, "zed") && stage.shares("door").len() <= 101);
}

/// The session with whose renewal a refused return is to continue is renewed by a request that purges.
#[test]
fn return_continues_after_refusal() {
    let stage = Stage::start();
    let lease = |n: usize| if (100..200).contains(&n) { 600_500 } else { 600_000 };
    stage.each(stage.asker, 2100, |n| format!("LOCK.SHARE door a{n:04} PX {} SESSION", lease(n)));
    stage.run(stage.alice, "LOCK.SHARE door keeper PX 36000000");
    let other = stage.node.connect();
    stage.run(other, "LOCK.SHARE door other PX 600000 SESSION");
    stage.node.hang_up(other); // The revocation gives the lock's timed work the next turn.
    stage.pass(100);
    Node::pass_us(700_000_000);
    // The request returns a thousand shares, and begins the return of the others.
    assert_eq!(stage.ask(stage.alice, "LOCK.SHARE door Carol LIMIT 5000 PX 60000"), Reply::Nil);
    let probes = stage.node.probes();
    while stage.node.probes() == probes {
        Node::pass_us(10_000);
        stage.turn();
    }
    stage.node.set_fence(Some(WriteFence::NoReplicas));
    for _ in 0..20 {
        Node::pass_us(10_000);
        stage.turn();
    }
    stage.node.set_fence(None);
    stage.ask(stage.alice, "LOCK.SHARE door Bob LIMIT 5000 PX 600000 BLOCK 0 NOTIFY news");
    let since = stage.node.now_ms();
    let is_granted = |_: &usize| {
        stage.pass(100);
        has(&stage, "Bob")
    };
    assert!((0..20).find(is_granted).is_some(), "Bob waits {} ms", stage.node.now_ms() - since);
}
