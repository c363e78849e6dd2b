//! The number of entries that a single command touches while the numbers of waiters and sessions grow and shrink. A table that
//! hashes all its entries again in one insertion, or frees them all in one removal, fails here.

use redis_lock::core::steps;

use super::crowd::Stage;

const MANY: usize = 4000;

/// The number of entries that one command may touch. One insertion may split two tables, and each entry that moves is counted
/// twice: when it is hashed and when its name is read.
const MAX_STEPS: usize = 1800;

/// Sends `line` for each number, each in an event-loop iteration of its own. No command touches too many entries.
#[track_caller]
fn no_command_touches_many(what: &str, stage: &Stage, line: impl Fn(usize) -> String) {
    let steps_of = |number| {
        steps::take();
        stage.send(stage.asker, &line(number));
        stage.node.turn();
        stage.node.event_log();
        stage.node.stream();
        steps::take()
    };
    let longest = (0..MANY).map(steps_of).max().unwrap_or(0);
    println!("{what}: {longest} steps in the longest of {MANY} commands");
    assert!((1..=MAX_STEPS).contains(&longest), "{what}: {longest} steps in one command");
}

#[test]
fn waits_for_many_locks_grow_and_shrink_in_steps() {
    let stage = Stage::start();
    stage.each(stage.alice, MANY, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
    no_command_touches_many("waits for many locks", &stage, |number| {
        format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0 NOTIFY news")
    });
    assert_eq!(stage.waiters(), MANY as u64);
    no_command_touches_many("their end", &stage, |number| format!("LOCK.RELEASE lock{number} bob"));
    assert_eq!(stage.waiters(), 0);
}

#[test]
fn waits_for_one_lock_grow_and_shrink_in_steps() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    no_command_touches_many("waits for one lock", &stage, |number| {
        format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK 0 NOTIFY news")
    });
    assert_eq!(stage.waiters(), MANY as u64);
    no_command_touches_many("their end", &stage, |number| format!("LOCK.RELEASE door b{number}"));
    assert_eq!(stage.waiters(), 0);
}

#[test]
fn channels_of_waits_grow_in_steps() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    stage.each(stage.listener, MANY, |number| format!("SSUBSCRIBE news{number}"));
    no_command_touches_many("channels", &stage, |number| {
        format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK 0 NOTIFY news{number}")
    });
    assert_eq!(stage.waiters(), MANY as u64);
}

#[test]
fn sessions_grow_and_shrink_in_steps() {
    let stage = Stage::start();
    no_command_touches_many("sessions", &stage, |number| format!("LOCK.ACQUIRE lock{number} a PX 600000 SESSION"));
    assert_eq!(stage.count("sessions"), MANY as u64);
    no_command_touches_many("their end", &stage, |number| format!("LOCK.RELEASE lock{number} a"));
    assert_eq!(stage.count("sessions"), 0);
}

#[test]
fn sessions_of_shares_grow_in_steps() {
    let stage = Stage::start();
    no_command_touches_many("shares", &stage, |number| format!("LOCK.SHARE lock{number} a PX 600000 SESSION"));
    assert_eq!(stage.count("sessions"), MANY as u64);
}
