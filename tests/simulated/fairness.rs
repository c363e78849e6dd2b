//! One lock's long queue does not delay other locks: their due work is done within a few iterations of the event loop.

use redis_lock::core::steps;
use redis_lock::server::{Node, Value};

use super::crowd::Stage;

/// Waiters of one lock: enough for dozens of batches.
const MANY: usize = 3000;

/// The number of iterations within which another lock has its turn.
const SOON: usize = 3;

fn has_holder(stage: &Stage, key: &str, token: &str) -> bool {
    let keyspace = stage.node.keyspace();
    let entry = keyspace.get(0, key.as_bytes()).filter(|entry| !entry.is_over(stage.node.now_ms()));
    entry.is_some_and(|entry| entry.value == Value::String(token.as_bytes().into()))
}

/// Turns the loop until `is_done`, and returns how many iterations that took.
#[track_caller]
fn turns_until(stage: &Stage, is_done: impl Fn() -> bool) -> usize {
    for turns in 1..=MANY {
        stage.node.turn();
        stage.node.event_log();
        if is_done() {
            return turns;
        }
    }
    panic!("it is not done after {MANY} iterations");
}

/// Alice holds the row, for which very many readers wait, and another lock, for which bob waits.
fn readers_and_bob(lease_ms: i64) -> Stage {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE row alice PX 600000");
    stage.run(stage.alice, &format!("LOCK.ACQUIRE other alice PX {lease_ms}"));
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 600000 BLOCK 0 NOTIFY news"));
    stage.run(stage.asker, "LOCK.ACQUIRE other bob PX 600000 BLOCK 0 NOTIFY news");
    assert_eq!(stage.waiters(), MANY as u64 + 1);
    stage
}

/// The other lock's due work is done soon, and before the last reader has a share. In the end all readers have one.
#[track_caller]
fn bob_is_granted_soon(stage: &Stage) {
    let turns = turns_until(stage, || has_holder(stage, "other", "bob"));
    assert!(turns <= SOON, "{turns} iterations");
    assert!(stage.waiters() > 0, "some readers still wait");
    stage.settle();
    assert_eq!((stage.shares("row").len(), stage.waiters()), (MANY, 0));
}

#[test]
fn long_queue_does_not_delay_deleted_lock() {
    let stage = readers_and_bob(600_000);
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.node.turn();
    stage.send(stage.alice, "DEL other");
    bob_is_granted_soon(&stage);
}

#[test]
fn long_queue_does_not_delay_end_of_lease() {
    let stage = readers_and_bob(100);
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.node.turn();
    Node::pass_us(101_000);
    bob_is_granted_soon(&stage);
}

#[test]
fn long_queue_does_not_delay_time_out() {
    let stage = readers_and_bob(600_000);
    stage.run(stage.asker, "LOCK.ACQUIRE other carol PX 600000 BLOCK 50 NOTIFY news");
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.node.turn();
    Node::pass_us(51_000);
    let timed_out = || stage.count("timed_out") == 1;
    assert!(turns_until(&stage, timed_out) <= SOON);
    assert!(stage.waiters() > 1, "some readers still wait");
}

#[test]
fn long_queue_does_not_delay_renewals() {
    let stage = readers_and_bob(600_000);
    stage.each(stage.alice, 200, |number| format!("LOCK.ACQUIRE s{number} a PX 150 SESSION"));
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.node.turn();
    Node::pass_us(60_000);
    let end = stage.node.now_ms() + 150;
    let is_renewed = |number: usize| {
        let keyspace = stage.node.keyspace();
        keyspace.get(0, format!("s{number}").as_bytes()).is_some_and(|entry| entry.expiry == Some(end))
    };
    assert!(turns_until(&stage, || (0..200).all(is_renewed)) <= SOON);
    assert!(stage.waiters() > 1, "some readers still wait");
}

/// All requests of a long queue end together. The lock is to be reviewed after each, and other locks have their turns.
#[track_caller]
fn ends_of_long_queue_delay_no_other_lock(block_ms: i64, end_all: impl Fn(&Stage)) {
    let stage = Stage::start();
    let [bob, carol] = [(); 2].map(|()| stage.node.connect());
    stage.run(stage.alice, "LOCK.ACQUIRE row alice PX 600000");
    stage.run(stage.alice, "LOCK.ACQUIRE other alice PX 100");
    stage.run(stage.alice, "LOCK.ACQUIRE deleted alice PX 600000");
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 600000 BLOCK {block_ms} NOTIFY news"));
    stage.run(bob, "LOCK.ACQUIRE other bob PX 600000 BLOCK 0");
    stage.run(carol, "LOCK.ACQUIRE deleted carol PX 600000 BLOCK 0");
    Node::pass_us(101_000);
    end_all(&stage);
    stage.send(stage.alice, "DEL deleted");
    let are_granted = || has_holder(&stage, "other", "bob") && has_holder(&stage, "deleted", "carol");
    let turns = turns_until(&stage, are_granted);
    assert!(turns <= SOON, "{turns} iterations");
    assert!(stage.waiters() > 0, "some readers still wait");
    stage.settle();
    assert_eq!(stage.waiters(), 0);
}

#[test]
fn time_outs_of_long_queue_delay_no_other_lock() {
    ends_of_long_queue_delay_no_other_lock(100, |_| {});
}

#[test]
fn closed_connection_with_long_queue_delays_no_other_lock() {
    ends_of_long_queue_delay_no_other_lock(0, |stage| stage.node.hang_up(stage.asker));
}

#[test]
fn release_of_share_grants_no_second_batch() {
    let stage = readers_and_bob(600_000);
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.node.turn();
    let before = stage.waiters();
    (0..50).for_each(|number| stage.send(stage.asker, &format!("LOCK.RELEASE row r{number}")));
    stage.node.turn();
    assert!(before - stage.waiters() <= 200, "{} readers get a share in an iteration", before - stage.waiters());
}

#[test]
fn returned_shares_do_not_delay_other_lock() {
    let stage = Stage::start();
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 10000 SESSION"));
    stage.run(stage.alice, "LOCK.ACQUIRE other alice PX 600000");
    stage.run(stage.asker, "LOCK.ACQUIRE other bob PX 600000 BLOCK 0 NOTIFY news");
    Node::pass_us(20_000_000);
    let has_begun = || !stage.shares("row").is_empty();
    for _ in 0..200 {
        Node::pass_us(10_000);
        stage.node.turn();
        if has_begun() && stage.shares("row").len() < MANY {
            break;
        }
    }
    stage.send(stage.alice, "DEL other");
    assert!(turns_until(&stage, || has_holder(&stage, "other", "bob")) <= SOON);
    assert!(stage.shares("row").len() < MANY, "shares are still being returned");
    stage.settle();
    assert_eq!((stage.shares("row").len(), stage.count("sessions")), (MANY, MANY as u64));
}

#[test]
fn time_outs_of_one_lock_do_not_delay_another() {
    let stage = Stage::start();
    ["row", "other"].iter().for_each(|key| stage.run(stage.alice, &format!("LOCK.ACQUIRE {key} alice PX 600000")));
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 1000 BLOCK 50 NOTIFY news"));
    stage.run(stage.asker, "LOCK.ACQUIRE other bob PX 1000 BLOCK 51 NOTIFY news");
    Node::pass_us(55_000);
    stage.node.turn();
    assert!(stage.count("timed_out") < MANY as u64);
    let bob_waits = || stage.count("contended_locks") > 1;
    assert!(!bob_waits(), "the other lock's request is answered in the first iteration");
}

#[test]
fn connection_with_many_sessions_does_not_delay_another() {
    let stage = Stage::start();
    let other = stage.node.connect();
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 600000 SESSION"));
    stage.run(other, "LOCK.ACQUIRE other bob PX 600000 SESSION");
    [stage.asker, other].into_iter().for_each(|client| stage.node.hang_up(client));
    assert!(turns_until(&stage, || !has_holder(&stage, "other", "bob")) <= SOON);
    assert!(!stage.shares("row").is_empty(), "shares are still being released");
}

#[test]
fn cluster_that_is_down_is_asked_once_for_all_locks() {
    let steps_while_down = |count: usize| {
        let stage = Stage::start();
        stage.node.join_cluster();
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX 100"));
        stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} bob PX 1000 BLOCK 0 NOTIFY news"));
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE own{number} alice PX 100 SESSION"));
        stage.node.set_cluster_down(true);
        steps::take();
        let mut all = 0;
        for _ in 0..200 {
            Node::pass_us(5_000);
            stage.node.turn();
            stage.node.event_log();
            all += steps::take();
        }
        stage.node.set_cluster_down(false);
        stage.pass(1000);
        assert_eq!(stage.waiters(), 0, "all locks are granted when the cluster is up again");
        all
    };
    let [few, many] = [300, 1200].map(steps_while_down);
    // Each lock is found to be due once. Asking for each of them every 20 ms would take a hundred steps or more.
    assert!(many - few <= 5 * 900, "{few} steps in a second with 300 locks, {many} with 1200");
}
