//! The number of entries that a single command touches while the numbers of waiters and sessions grow and shrink. A table that
//! hashes all its entries again in one insertion, or frees them all in one removal, fails here.

use redis_lock::core::steps;

use super::stage::Stage;

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
        stage.turn();
        steps::take()
    };
    let longest = (0..MANY).map(steps_of).max().unwrap_or(0);
    println!("{what}: {longest} steps in the longest of {MANY} commands");
    assert!((1..=MAX_STEPS).contains(&longest), "{what}: {longest} steps in one command");
}

/// Requests add an entry each, which the field `count` of INFO counts, and releases remove it. `claim` is a key and a token.
#[track_caller]
fn grow_and_shrink_in_steps(
    stage: &Stage,
    count: &str,
    form: &str,
    claim: impl Fn(usize) -> String,
    options: impl Fn(usize) -> String,
) {
    no_command_touches_many(count, stage, |number| {
        format!("LOCK.{form} {} PX 600000 {}", claim(number), options(number))
    });
    assert_eq!(stage.count(count), MANY as u64);
    no_command_touches_many("their end", stage, |number| format!("LOCK.RELEASE {}", claim(number)));
    assert_eq!(stage.count(count), 0);
}

#[test]
fn waits_for_many_locks_grow_and_shrink_in_steps() {
    let stage = Stage::start();
    stage.each(stage.alice, MANY, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000"));
    let claim = |number| format!("lock{number} bob");
    grow_and_shrink_in_steps(&stage, "waiters", "ACQUIRE", claim, |_| "BLOCK 0 NOTIFY news".to_owned());
}

#[test]
fn waits_for_one_lock_grow_and_shrink_in_steps() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    stage.each(stage.listener, MANY, |number| format!("SSUBSCRIBE news{number}"));
    let options: [fn(usize) -> String; 2] =
        [|_| "BLOCK 0 NOTIFY news".to_owned(), |number| format!("BLOCK 0 NOTIFY news{number}")];
    for options in options {
        grow_and_shrink_in_steps(&stage, "waiters", "ACQUIRE", |number| format!("door b{number}"), options);
    }
}

#[test]
fn sessions_grow_and_shrink_in_steps() {
    for form in ["ACQUIRE", "SHARE"] {
        let stage = Stage::start();
        grow_and_shrink_in_steps(
            &stage,
            "sessions",
            form,
            |number| format!("lock{number} a"),
            |_| "SESSION".to_owned(),
        );
    }
}
