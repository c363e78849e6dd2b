//! The work of one iteration of the event loop does not grow with the number of entries: with 2,400 of a kind an iteration
//! touches at most a fifth more of them than with 1,200.

mod sessions;

use redis_lock::core::steps;

use super::stage::Stage;

const FEW: usize = 1200;
const MANY: usize = 2400;

/// The number of tasks of one batch: 250, and the last one may have 1000 items, such as shares that are returned together.
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

/// Asserts the same of a command.
#[track_caller]
fn command_does_not_grow(line: &str, prepare: impl Fn(&Stage, usize)) {
    does_not_grow(line, |stage, count| {
        prepare(stage, count);
        stage.send(stage.alice, line);
        stage.settle()
    });
}

/// Asserts the same of what `end_all` begins, after which no request waits and no session is left.
#[track_caller]
fn end_of_all_does_not_grow(what: &str, prepare: impl Fn(&Stage, usize), end_all: impl Fn(&Stage)) {
    does_not_grow(what, |stage, count| {
        prepare(stage, count);
        steps::take();
        end_all(stage);
        let longest = steps::take().max(stage.pass(2000));
        assert_eq!((stage.waiters(), stage.count("sessions")), (0, 0), "{what}");
        longest
    });
}

/// Alice holds `count` locks, and one request waits for a message about each.
fn wait_for_each(stage: &Stage, count: usize) {
    stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
    stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0 NOTIFY news"));
    assert_eq!(stage.waiters(), count as u64);
}

/// Alice holds the door, and `count` requests wait for a message about it.
fn wait_for_one(stage: &Stage, count: usize) {
    wait_in_form(stage, count, "ACQUIRE", 0);
}

fn wait_in_form(stage: &Stage, count: usize, form: &str, block_ms: i64) {
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    let line = |number| format!("LOCK.{form} door b{number} PX 600000 BLOCK {block_ms} NOTIFY news");
    stage.each(stage.asker, count, line);
    assert_eq!(stage.waiters(), count as u64);
}

fn without(client: impl Fn(&Stage) -> i64, prepare: impl Fn(&Stage, usize)) -> impl Fn(&Stage, usize) {
    move |stage, count| {
        prepare(stage, count);
        stage.node.hang_up(client(stage));
        stage.settle();
    }
}

#[test]
fn commands_for_long_queue() {
    command_does_not_grow("LOCK.RELEASE door alice", wait_for_one);
    command_does_not_grow("LOCK.WAITERS door COUNT 1000000", wait_for_one);
    command_does_not_grow("LOCK.QUEUES COUNT 1000", wait_for_one);
    does_not_grow("INFO", |stage, count| {
        wait_for_one(stage, count);
        steps::take();
        stage.node.info();
        steps::take()
    });
}

/// These two grow with the number of contended locks, but not faster.
#[test]
fn listing_of_many_contended_locks() {
    let [few, many] = [FEW, MANY].map(|count| {
        let stage = Stage::start();
        wait_for_each(&stage, count);
        stage.send(stage.alice, "LOCK.QUEUES COUNT 1000");
        let queues = stage.settle();
        stage.node.info();
        [queues, steps::take()]
    });
    for (what, (few, many)) in ["LOCK.QUEUES", "INFO"].into_iter().zip(few.into_iter().zip(many)) {
        println!("{what}: {few} steps with {FEW} locks, {many} with {MANY}");
        assert!(few >= FEW && many <= 2 * few + few / 5, "{what}: {few} steps with {FEW} locks, {many} with {MANY}");
    }
}

#[test]
fn release_with_queue_of_blocked_clients() {
    command_does_not_grow("LOCK.RELEASE door alice", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        for number in 0..count {
            stage.run(stage.node.connect(), &format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK 0"));
        }
    });
}

#[test]
fn all_locks_are_freed_together() {
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        end_of_all_does_not_grow(line, wait_for_each, |stage| stage.send(stage.alice, line));
    }
    let unheard = without(|stage| stage.listener, wait_for_each);
    end_of_all_does_not_grow("FLUSHALL without a listener", unheard, |stage| stage.send(stage.alice, "FLUSHALL"));
    let detached = without(|stage| stage.asker, wait_for_each);
    end_of_all_does_not_grow("FLUSHALL, entries are detached", detached, |stage| stage.send(stage.alice, "FLUSHALL"));
}

#[test]
fn leases_end_together() {
    end_of_all_does_not_grow("leases", wait_for_each, |stage| {
        let end = stage.node.now_ms() + 50;
        stage.each(stage.alice, MANY, |number| format!("PEXPIREAT lock{number} {end}"));
    });
}

#[test]
fn time_outs_and_grace_periods_end_together() {
    does_not_grow("time-outs and grace times", |stage, count| {
        // The requests take no time here: their waits end together.
        wait_in_form(stage, count, "ACQUIRE", 1000);
        let longest = stage.pass(2000);
        assert_eq!(stage.waiters(), 0);
        longest.max(stage.pass(12_000))
    });
}

#[test]
fn waits_of_one_connection_end_together() {
    end_of_all_does_not_grow("a closed connection", wait_for_one, |stage| stage.node.hang_up(stage.asker));
    let unheard = without(|stage| stage.listener, wait_for_one);
    end_of_all_does_not_grow("no listener", unheard, |stage| stage.send(stage.alice, "LOCK.RELEASE door alice"));
}

#[test]
fn readers_are_granted_together() {
    let readers = |stage: &Stage, count: usize| wait_in_form(stage, count, "SHARE", 0);
    end_of_all_does_not_grow("readers", readers, |stage| stage.send(stage.alice, "LOCK.RELEASE door alice"));
    let readers_of_many = |stage: &Stage, count: usize| {
        let locks = count / 20;
        stage.each(stage.alice, locks, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
        stage.each(stage.asker, count, |number| {
            format!("LOCK.SHARE lock{} b{number} PX 600000 BLOCK 0 NOTIFY news", number % locks)
        });
    };
    end_of_all_does_not_grow("readers of many locks", readers_of_many, |stage| stage.send(stage.alice, "FLUSHALL"));
}

#[test]
fn recovery_period_ends() {
    does_not_grow("the end of a recovery period", |stage, count| {
        wait_for_each(stage, count);
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
    let prepare = |stage: &Stage, count: usize| {
        wait_for_each(stage, count);
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE other{number} a PX 600000 SESSION"));
    };
    end_of_all_does_not_grow("a new role", prepare, |stage| stage.node.become_replica());
}

#[test]
fn slot_with_long_queue_moves() {
    let prepare = |stage: &Stage, count: usize| {
        stage.node.join_cluster();
        wait_for_one(stage, count);
    };
    let slot = redis_lock::server::slot_of(b"door");
    end_of_all_does_not_grow("a slot that moves", prepare, |stage| stage.node.lose_slot(slot));
}
