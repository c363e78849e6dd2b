//! One lock's long queue does not delay other locks: their due work is done within a few iterations of the event loop.

use redis_lock::core::steps;
use redis_lock::server::{Node, Value};

use super::stage::Stage;

/// Waiters of one lock: enough for dozens of batches.
const MANY: usize = 3000;

/// The number of iterations within which another lock has its turn.
const SOON: usize = 3;

fn has_holder(stage: &Stage, key: &str, token: &str) -> bool {
    let keyspace = stage.node.keyspace();
    let entry = keyspace.get(0, key.as_bytes()).filter(|entry| !entry.is_over(stage.node.now_ms()));
    entry.is_some_and(|entry| entry.value == Value::String(token.as_bytes().into()))
}

#[track_caller]
fn is_soon(stage: &Stage, what: &str, is_done: impl Fn() -> bool) {
    let is_done_now = |_: &usize| {
        stage.turn();
        is_done()
    };
    let turns = (1..=MANY).find(is_done_now);
    assert!(turns.is_some_and(|turns| turns <= SOON), "{what}: {turns:?} iterations");
}

/// Alice holds the row, for which very many readers wait, and two other locks, for which bob and carol wait.
fn readers_and_others(block_ms: i64) -> Stage {
    let stage = Stage::start();
    let others = stage.node.connect();
    for line in ["row alice PX 600000", "other alice PX 100", "deleted alice PX 600000"] {
        stage.run(stage.alice, &format!("LOCK.ACQUIRE {line}"));
    }
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 600000 BLOCK {block_ms} NOTIFY news"));
    for line in ["other bob PX 600000 BLOCK 0", "deleted carol PX 600000 BLOCK 0", "deleted dave PX 600000 BLOCK 50"] {
        stage.run(others, &format!("LOCK.ACQUIRE {line} NOTIFY news"));
    }
    stage.each(stage.alice, 200, |number| format!("LOCK.ACQUIRE s{number} a PX 300 SESSION"));
    assert_eq!(stage.waiters(), MANY as u64 + 3);
    stage
}

/// While the row is busy, a lease ends, a wait ends, sessions need a renewal, and a lock is deleted.
#[track_caller]
fn others_have_their_turns(what: &str, stage: &Stage) {
    let renewed = stage.node.now_ms() + 300;
    let is_renewed = |number: usize| {
        let keyspace = stage.node.keyspace();
        keyspace.get(0, format!("s{number}").as_bytes()).is_some_and(|entry| entry.expiry >= Some(renewed))
    };
    let done = || {
        let granted = has_holder(stage, "other", "bob") && has_holder(stage, "deleted", "carol");
        granted && stage.count("timed_out") > 0 && (0..200).all(is_renewed)
    };
    stage.send(stage.alice, "DEL deleted");
    is_soon(stage, what, done);
    assert!(stage.waiters() > 0, "{what}: some readers still wait");
    stage.settle();
    assert_eq!(stage.waiters(), 0);
}

#[test]
fn grants_to_long_queue_delay_no_other_lock() {
    let stage = readers_and_others(0);
    Node::pass_us(101_000);
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    others_have_their_turns("grants", &stage);
    assert_eq!(stage.shares("row").len(), MANY);
}

#[test]
fn ends_of_long_queue_delay_no_other_lock() {
    let stage = readers_and_others(100);
    Node::pass_us(101_000);
    others_have_their_turns("time-outs", &stage);
    let stage = readers_and_others(0);
    Node::pass_us(101_000);
    stage.node.hang_up(stage.asker);
    others_have_their_turns("a closed connection", &stage);
}

#[test]
fn release_of_share_grants_no_second_batch() {
    let stage = readers_and_others(0);
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.turn();
    let before = stage.waiters();
    (0..50).for_each(|number| stage.send(stage.asker, &format!("LOCK.RELEASE row r{number}")));
    stage.turn();
    assert!(before - stage.waiters() <= 200, "{} readers get a share in an iteration", before - stage.waiters());
}

/// The last of many readers sends its request again after all before it have released the lock, and before its turn.
#[test]
fn request_is_repeated_after_whole_batch() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE row alice PX 600000");
    // The release grants a batch, and the background work of the same iteration another one.
    let batch = 200;
    stage.each(stage.asker, batch + 1, |number| format!("LOCK.SHARE row r{number} PX 600000 BLOCK 0 NOTIFY news"));
    stage.send(stage.alice, "LOCK.RELEASE row alice");
    stage.turn();
    assert_eq!((stage.shares("row").len(), stage.waiters()), (batch, 1), "one iteration grants two batches");
    (0..batch).for_each(|number| stage.send(stage.asker, &format!("LOCK.RELEASE row r{number}")));
    stage.send(stage.asker, &format!("LOCK.SHARE row r{batch} PX 600000 BLOCK 0 NOTIFY news"));
    stage.settle();
    assert_eq!((stage.shares("row"), stage.waiters()), (vec![format!("r{batch}")], 0));
}

#[test]
fn returned_shares_do_not_delay_other_lock() {
    let stage = Stage::start();
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 10000 SESSION"));
    stage.run(stage.alice, "LOCK.ACQUIRE other alice PX 600000");
    stage.run(stage.asker, "LOCK.ACQUIRE other bob PX 600000 BLOCK 0 NOTIFY news");
    Node::pass_us(20_000_000);
    let is_under_way = |_: &usize| {
        Node::pass_us(10_000);
        stage.turn();
        (1..MANY).contains(&stage.shares("row").len())
    };
    assert!((0..200).find(is_under_way).is_some());
    stage.send(stage.alice, "DEL other");
    is_soon(&stage, "a deleted lock", || has_holder(&stage, "other", "bob"));
    assert!(stage.shares("row").len() < MANY, "shares are still being returned");
    stage.settle();
    assert_eq!((stage.shares("row").len(), stage.count("sessions")), (MANY, MANY as u64));
}

#[test]
fn connection_with_many_sessions_does_not_delay_another() {
    let stage = Stage::start();
    let other = stage.node.connect();
    stage.each(stage.asker, MANY, |number| format!("LOCK.SHARE row r{number} PX 600000 SESSION"));
    stage.run(other, "LOCK.ACQUIRE other bob PX 600000 SESSION");
    [stage.asker, other].into_iter().for_each(|client| stage.node.hang_up(client));
    is_soon(&stage, "another connection", || !has_holder(&stage, "other", "bob"));
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
        for _ in 0..200 {
            Node::pass_us(5_000);
            stage.turn();
        }
        let all = steps::take();
        stage.node.set_cluster_down(false);
        stage.pass(1000);
        assert_eq!(stage.waiters(), 0, "all locks are granted when the cluster is up again");
        all
    };
    let [few, many] = [300, 1200].map(steps_while_down);
    // Each lock is found to be due once. Asking for each of them every 20 ms would take a hundred steps or more.
    assert!(many - few <= 5 * 900, "{few} steps in a second with 300 locks, {many} with 1200");
}

/// Very many locks become free together, and then one more.
#[test]
fn locks_free_together_do_not_delay_later_one() {
    let stage = Stage::start();
    let others = stage.node.connect();
    let wait_as = |who: &str, lease_ms: usize| {
        let line = |key: String| format!("LOCK.ACQUIRE {key} {who} PX {lease_ms} BLOCK 0 NOTIFY news");
        stage.each(stage.asker, MANY, |number| line(format!("k{number}")));
        stage.run(others, &line("later".to_owned()));
    };
    let last_is_soon = |what: &str, who: &str| {
        is_soon(&stage, what, || has_holder(&stage, "later", who));
        assert!(stage.waiters() > MANY as u64 / 2, "{what}: most still wait");
        stage.settle();
        assert_eq!(stage.waiters(), 0);
    };
    stage.each(stage.alice, MANY, |number| format!("LOCK.ACQUIRE k{number} alice PX 100"));
    stage.run(stage.alice, "LOCK.ACQUIRE later alice PX 103");
    wait_as("bob", 600_000);
    Node::pass_us(105_000);
    last_is_soon("leases", "bob");
    wait_as("carol", 600_000);
    (0..MANY).for_each(|number| stage.send(stage.alice, &format!("DEL k{number}")));
    stage.send(stage.alice, "DEL later");
    last_is_soon("deleted", "carol");
}

/// Releases of many locks come due together, and each takes the server a millisecond.
#[test]
fn slow_work_leaves_time_for_clients() {
    let stage = Stage::start();
    stage.each(stage.asker, 100, |number| format!("LOCK.ACQUIRE s{number} a PX 600000 SESSION"));
    Node::set_clock_read_us(1000);
    stage.node.hang_up(stage.asker);
    let mut left = 100;
    for turn in 1..=100 {
        stage.turn();
        let before = std::mem::replace(&mut left, stage.node.keyspace().of(0).count());
        assert!(before - left <= 10, "{} locks were released in iteration {turn}", before - left);
    }
    assert_eq!((left, stage.left()), (0, 0));
}
