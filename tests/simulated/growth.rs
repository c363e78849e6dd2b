//! How long the module holds up the server at a stretch: in one round of its loop it touches so many entries at most, however
//! many there are. What it takes with 2,400 of a kind must be hardly more than with 1,200.

use redis_lock::core::steps;
use redis_lock::server::Node;

use super::crowd::Stage;

const FEW: usize = 1200;
const MANY: usize = 2400;

/// The most tasks in a row: after 1000 the server serves its clients, but what was begun is done, which is up to 100 grants.
const IN_A_ROW: usize = 1100;

/// What is measured does not grow with the number of entries.
#[track_caller]
fn does_not_grow(what: &str, longest: impl Fn(&Stage, usize) -> usize) {
    steps::take_longest_batch();
    let [few, many] = [FEW, MANY].map(|count| longest(&Stage::start(), count));
    let tasks = steps::take_longest_batch();
    println!("{what}: {few} steps with {FEW}, {many} with {MANY}; {tasks} tasks in a row");
    assert!(few > 0, "{what}");
    assert!(tasks <= IN_A_ROW, "{what}: {tasks} tasks in a row");
    assert!(many <= few + few / 5, "{what}: {few} steps with {FEW}, {many} with {MANY}");
}

/// Alice holds so many locks, and a request waits for a message about each.
fn wait_for_each(stage: &Stage, count: usize, px: i64) {
    stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX {px}"));
    stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} bob PX 600000 BLOCK 0 NOTIFY news"));
    assert_eq!(stage.waiters(), count as u64);
}

/// Alice holds the door, and so many requests wait for a message about it.
fn wait_for_one(stage: &Stage, count: usize, block: i64) {
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    let line = |number| format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK {block} NOTIFY news");
    stage.each(stage.asker, count, line);
    assert_eq!(stage.waiters(), count as u64);
}

#[test]
fn a_release_with_a_long_line() {
    does_not_grow("a release", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn a_look_at_a_long_line() {
    does_not_grow("LOCK.WAITERS", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.send(stage.alice, "LOCK.WAITERS door COUNT 1000000");
        stage.settle()
    });
}

/// What LOCK.QUEUES touches, and what INFO does.
fn review_all(stage: &Stage) -> [usize; 2] {
    stage.send(stage.alice, "LOCK.QUEUES COUNT 1000");
    let queues = stage.settle();
    stage.node.info();
    [queues, steps::take()]
}

#[test]
fn a_look_at_all_locks_of_which_one_has_a_long_line() {
    for (number, what) in ["LOCK.QUEUES", "INFO"].into_iter().enumerate() {
        does_not_grow(what, |stage, count| {
            wait_for_one(stage, count, 0);
            review_all(stage)[number]
        });
    }
}

/// These two grow, but not faster than the number of locks that are waited for.
#[test]
fn a_look_at_all_locks_of_which_many_are_waited_for() {
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
fn a_line_of_blocked_clients() {
    does_not_grow("a release, and a grant that nobody hears of", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        for number in 0..count {
            stage.run(stage.node.connect(), &format!("LOCK.ACQUIRE door b{number} PX 600000 BLOCK 0"));
        }
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn leases_that_end_together() {
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
fn locks_that_are_flushed_or_swapped() {
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
fn time_outs_and_grace_times_that_end_together() {
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
fn a_connection_that_closes_with_sessions() {
    does_not_grow("sessions", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.ACQUIRE lock{number} a PX 600000 SESSION"));
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

/// The places of sessions that have ended are passed over many at a time.
#[test]
fn a_check_of_few_sessions_after_there_were_many() {
    let longest = |count| {
        let stage = Stage::start();
        stage.each(stage.alice, count, |number| format!("LOCK.ACQUIRE lock{number} alice PX 600000 SESSION"));
        stage.each(stage.alice, count - 1, |number| format!("LOCK.RELEASE lock{number} alice"));
        assert_eq!(stage.count("sessions"), 1);
        stage.send(stage.asker, "FLUSHDB");
        stage.settle()
    };
    let [few, many] = [FEW, MANY].map(longest);
    println!("a check of one session: {few} steps after {FEW}, {many} after {MANY}");
    assert!(many - few <= (MANY - FEW) / 50, "{few} steps after {FEW}, {many} after {MANY}");
}

#[test]
fn a_connection_that_closes_with_shares_of_one_lock() {
    does_not_grow("sessions of shares", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

#[test]
fn a_shared_lock_that_is_deleted() {
    does_not_grow("sessions of shares that end together", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.send(stage.alice, "DEL door");
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), 0);
        longest
    });
}

#[test]
fn shares_that_are_given_back() {
    does_not_grow("shares that are given back to their sessions", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 10000 SESSION"));
        Node::pass_us(20_000_000);
        let longest = stage.pass(2000);
        assert_eq!((stage.shares("door").len(), stage.count("sessions")), (count, count as u64));
        longest
    });
}

#[test]
fn shares_that_have_passed_and_are_given_back() {
    does_not_grow("shares that are given back beside one that goes on", |stage, count| {
        stage.run(stage.alice, "LOCK.SHARE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 10000 SESSION"));
        Node::pass_us(20_000_000);
        let longest = stage.pass(2000);
        assert_eq!((stage.shares("door").len(), stage.count("sessions")), (count + 1, count as u64));
        longest
    });
}

#[test]
fn shares_that_have_passed() {
    does_not_grow("a look at a lock with shares that have passed", |stage, count| {
        stage.run(stage.alice, "LOCK.SHARE door alice PX 600000");
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 100"));
        Node::pass_us(1_000_000);
        stage.settle();
        stage.send(stage.alice, "LOCK.INFO door");
        stage.settle()
    });
}

#[test]
fn a_share_that_others_remove() {
    does_not_grow("sessions of a lock that others have changed", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 600000 SESSION"));
        stage.send(stage.alice, "ZREM door a7");
        let longest = stage.settle();
        assert_eq!(stage.count("sessions"), count as u64 - 1);
        longest
    });
}

#[test]
fn a_connection_that_closes_with_waits_for_a_message() {
    does_not_grow("waits of a connection", |stage, count| {
        wait_for_one(stage, count, 0);
        stage.node.hang_up(stage.asker);
        let longest = stage.settle();
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn a_listener_that_is_gone() {
    does_not_grow("waits that nobody listens for", |stage, count| {
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
fn a_listener_that_is_gone_for_many_locks() {
    does_not_grow("waits for many locks that nobody listens for", |stage, count| {
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
fn readers_that_are_let_in_together() {
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
fn readers_of_many_locks_that_are_let_in_together() {
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
fn the_end_of_a_recovery_period() {
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
fn a_new_role_with_waits_and_sessions() {
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
fn a_slot_that_leaves_with_a_long_line() {
    does_not_grow("a slot that leaves", |stage, count| {
        stage.node.join_cluster();
        wait_for_one(stage, count, 0);
        stage.node.lose_slot(redis_lock::server::slot_of(b"door"));
        let longest = stage.pass(1000);
        assert_eq!(stage.waiters(), 0);
        longest
    });
}

#[test]
fn locks_that_nobody_waits_for_any_more() {
    does_not_grow("locks with places that are kept", |stage, count| {
        wait_for_each(stage, count, 600_000);
        stage.node.hang_up(stage.asker);
        stage.settle();
        stage.send(stage.alice, "FLUSHALL");
        stage.settle()
    });
}

#[test]
fn copies_of_one_request() {
    does_not_grow("copies", |stage, count| {
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        for _ in 0..count {
            stage.run(stage.node.connect(), "LOCK.ACQUIRE door bob PX 600000 BLOCK 0");
        }
        assert_eq!(stage.waiters(), 1000, "no more share a place");
        stage.send(stage.alice, "LOCK.RELEASE door alice");
        stage.settle()
    });
}

#[test]
fn places_for_other_forms_that_are_given_up_with_a_grant() {
    does_not_grow("places for other forms", |stage, count| {
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

#[test]
fn shares_with_sessions_of_a_lock_that_is_asked_for_while_grants_are_held_back() {
    does_not_grow("a request while grants are held back", |stage, count| {
        stage.each(stage.asker, count, |number| format!("LOCK.SHARE door a{number} PX 2000 SESSION"));
        stage.run(stage.alice, "CONFIG SET lock.recovery-ms 20000");
        Node::pass_us(5_000_000);
        stage.settle();
        // The first request after the standstill is another matter.
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 1000");
        stage.send(stage.alice, "LOCK.ACQUIRE door alice PX 1000");
        stage.settle()
    });
}

#[test]
fn shares_with_sessions_of_many_locks_that_others_have_changed() {
    does_not_grow("shares of many locks in doubt", |stage, count| {
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

/// Sessions are renewed although all of them are to be looked at again and again, because a database of others is flushed.
#[test]
fn renewals_go_on_while_another_database_is_flushed_again_and_again() {
    for line in ["PING", "FLUSHDB"] {
        let stage = Stage::start();
        stage.each(stage.asker, MANY, |number| format!("LOCK.ACQUIRE lock{number} a PX 200 SESSION"));
        stage.run(stage.alice, "SELECT 1");
        for _ in 0..300 {
            Node::pass_us(1000);
            stage.send(stage.alice, line);
            stage.node.turn();
        }
        let now = stage.node.now_ms();
        let held = stage.node.keyspace().of(0).filter(|(_, entry)| !entry.is_over(now)).count();
        assert_eq!(held, MANY, "{line} each millisecond");
    }
}
