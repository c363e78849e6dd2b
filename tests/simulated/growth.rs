//! The work of one iteration of the event loop does not grow with the number of entries: with 2,400 of a kind an iteration
//! touches at most a fifth more of them than with 1,200.

mod sessions;

use redis_lock::core::steps;

use super::crowd::Stage;

const FEW: usize = 1200;
const MANY: usize = 2400;

/// The number of entries that one batch processes: 250, and the last task may have 1000 entries, such as the copies of a request.
const MAX_BATCH_TASKS: usize = 1250;

/// Asserts that `longest`, the number of entries that one iteration touches, does not grow with the number of entries.
#[track_caller]
fn does_not_grow(what: &str, longest: impl Fn(&Stage, usize) -> usize) {
    steps::take_longest_batch();
    let [few, many] = [FEW, MANY].map(|count| longest(&Stage::start(), count));
    let tasks = steps::take_longest_batch();
    println!("{what}: {few} steps with {FEW}, {many} with {MANY}; {tasks} tasks in one batch");
    assert!(few > 0, "{what}");
    assert!(tasks <= MAX_BATCH_TASKS, "{what}: {tasks} tasks in one batch");
    assert!(many <= few + few / 5, "{what}: {few} steps with {FEW}, {many} with {MANY}");
}

/// Alice holds `count` locks, and one request waits for a message about each.
fn wait_for_each(stage: &Stage, count: usize, px: i64) {
    stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX {px}"));
    stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0 NOTIFY news"));
    assert_eq!(stage.waiters(), count as u64);
}

/// Alice holds the door, and `count` requests wait for a message about it.
fn wait_for_one(stage: &Stage, count: usize, block: i64) {
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    let line = |number| format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK {block} NOTIFY news");
    stage.each(stage.asker, count, line);
    assert_eq!(stage.waiters(), count as u64);
}

#[test]
fn release_with_long_queue() {
    does_not_grow("a release", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn listing_of_long_queue() {
    does_not_grow("LOCK.WAITERS", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.send(stage.alice, "LOCK.WAITERS door COUNT 1000000");
        stage.settle()
    });
}

/// Returns the numbers of entries that LOCK.QUEUES and INFO touch.
fn review_all(stage: &Stage) -> [usize; 2] {
    stage.send(stage.alice, "LOCK.QUEUES COUNT 1000");
    let queues = stage.settle();
    stage.node.info();
    [queues, steps::take()]
}

#[test]
fn listing_of_locks_with_one_long_queue() {
    for (number, what) in ["LOCK.QUEUES", "INFO"].into_iter().enumerate() {
        does_not_grow(what, |stage, count| {
            wait_for_one(stage, count, 0);
            review_all(stage)[number]
        });
    }
}

/// These two grow with the number of contended locks, but not faster.
#[test]
fn listing_of_many_contended_locks() {
    let [few, many] = [FEW, MANY].map(|count| {
        let stage = Stage::start();
        wait_for_each(&stage, count, 600_000);
        review_all(&stage)
    });
    for (what, (few, many)) in ["LOCK.QUEUES", "INFO"].into_iter().zip(few.into_iter().zip(many)) {
        println!("{what}: {few} steps with {FEW} locks, {many} with {MANY}");
        assert!(few >= FEW && many <= 2 * few + few / 5, "{what}: {few} steps with {FEW} locks, {many} with {MANY}");
    }
}

#[test]
fn release_with_queue_of_blocked_clients() {
    does_not_grow("a release with blocked clients", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        for number in 0..count {
            stage.run(stage.node.connect(), &format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK 0"));
        }
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn leases_end_together() {
    does_not_grow("leases", |stage, count| {
        wait_for_each(stage, count, 600_000);
        let end = stage.node.now_ms() + 50;
        stage.each(stage.alice, count, |number| format!("PEXPIREAT lock{number} {end}"));
        let longest = stage.pass(2000);
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn locks_are_flushed_or_swapped() {
    let after = |stage: &Stage, count, change| {
        wait_for_each(stage, count, 600_000);
        stage.send(stage.alice, change);
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0, "{change}");
        longest
    };
    does_not_grow("FLUSHALL", |stage, count| after(stage, count, "FLUSHALL"));
    does_not_grow("FLUSHDB", |stage, count| after(stage, count, "FLUSHDB"));
    does_not_grow("SWAPDB", |stage, count| after(stage, count, "SWAPDB 0 1"));
}

#[test]
fn time_outs_and_grace_periods_end_together() {
    does_not_grow("time-outs and grace times", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        // The requests take no time here: their waits end together.
        wait_for_one(stage, count, 1000);
        let longest = stage.pass(2000);
        assert_eq!(stage.waiters(), 0);
        longest.max(stage.pass(12_000))
    });
}

#[test]
fn connection_with_waits_for_messages_closes() {
    does_not_grow("waits of a connection", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn release_after_subscriber_left() {
    does_not_grow("waits without a subscriber", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.node.hang_up(stage.listener);
        stage.settle();
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn flush_after_subscriber_left() {
    does_not_grow("waits for many locks without a subscriber", |stage, count| {
        wait_for_each(stage, count, 600_000);
        stage.node.hang_up(stage.listener);
        stage.settle();
        stage.send(stage.alice, "FLUSHALL");
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn readers_are_granted_together() {
    does_not_grow("readers", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door b{number} PX 600000 BLOCK 0 NOTIFY news"));
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn readers_of_many_locks_are_granted_together() {
    does_not_grow("readers of many locks", |stage, count| {
        let locks = count / 20;
        stage.each(stage.alice, locks, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
        stage.each(stage.asker, count, |number| {
            format!("LOCK.SHARE lock{} b{number} PX 600000 BLOCK 0 NOTIFY news", number % locks)
        });
        stage.send(stage.alice, "FLUSHALL");
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn recovery_period_ends() {
    does_not_grow("the end of a recovery period", |stage, count| {
        wait_for_each(stage, count, 600_000);
        stage.run(stage.alice, "CONFIG SET lock.recovery-ms 20000");
        stage.node.become_replica();
        stage.settle();
        stage.node.become_master();
        stage.settle();
        stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0 NOTIFY news"));
        stage.run(stage.alice, "FLUSHALL");
        assert_eq!(stage.waiters(), count as u64);
        let longest = stage.pass(25_000);
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn role_changes_with_waits_and_sessions() {
    does_not_grow("a new role", |stage, count| {
        wait_for_each(stage, count, 600_000);
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE other{number} a PX 600000 SESSION"));
        steps::take();
        stage.node.become_replica();
        let longest = steps::take().max(stage.settle());
        assert_eq!((stage.waiters(), stage.count("sessions")), (0, 0));
        longest
    });
}

#[test]
fn slot_with_long_queue_moves() {
    does_not_grow("a slot that moves", |stage, count| {
        stage.node.join_cluster();
        wait_for_one(stage, count, 0);
        stage.node.lose_slot(redis_lock::server::slot_of(b"door"));
        let longest = stage.pass(1000);
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn flush_with_detached_entries_only() {
    does_not_grow("locks with detached queue entries", |stage, count| {
        wait_for_each(stage, count, 600_000);
        stage.node.hang_up(stage.asker);
        stage.settle();
        stage.send(stage.alice, "FLUSHALL");
        stage.settle()
    });
}

#[test]
fn release_with_copies_of_one_request() {
    does_not_grow("copies", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        for _ in 0..count {
            stage.run(stage.node.connect(), "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
        }
        assert_eq!(stage.waiters(), 1000, "the limit of copies");
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn grant_withdraws_entries_for_other_kinds() {
    does_not_grow("queue entries for other kinds", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        stage.each(stage.asker, 100, |token| format!("LOCK.SHARE door t{token} PX 600000 BLOCK 0 NOTIFY news"));
        let (count, copies) = (2 * count, count / 50);
        stage.each(stage.listener, copies, |copy| format!("SSUBSCRIBE news{copy}"));
        stage.each(stage.asker, count, |number| {
            let (token, copy) = (number % 100, number / 100);
            format!("LOCK.ACQUIRE door t{token} PX 600000 BLOCK 0 NOTIFY news{copy}")
        });
        assert_eq!(stage.waiters(), 100 + count as u64);
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.node.turn();
        let received = 100 + count as u64 - stage.waiters();
        stage.settle();
        assert_eq!(stage.waiters(), 0);
        received as usize
    });
}
