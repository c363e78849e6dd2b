//! The module keeps an idle server idle: without work it sets no timer.

use redis_lock::server::Node;

use super::crowd::Stage;

/// Returns the number of event-loop iterations in which the module asks for another one immediately, after a change of role while
/// a queue entry is detached, and then this command.
fn busy_iterations(command: &str) -> usize {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    stage.run(stage.asker, "LOCK.ACQUIRE door bob PX 600000 BLOCK 100 NOTIFY news");
    stage.pass(200);
    assert_eq!(stage.waiters(), 0, "its entry is kept");
    stage.node.become_replica();
    stage.node.become_master();
    stage.send(stage.asker, command);
    let is_busy = || {
        stage.node.turn();
        stage.node.event_log();
        stage.node.next_wake().is_some_and(|wake| wake <= stage.node.now_ms())
    };
    (0..50).filter(|_| is_busy()).count()
}

#[test]
fn kept_entry_that_is_released_leaves_server_idle() {
    assert!(busy_iterations("LOCK.RELEASE door bob") < 10);
}

#[test]
fn kept_entry_that_comes_back_leaves_server_idle() {
    assert!(busy_iterations("LOCK.ACQUIRE door bob PX 600000 BLOCK 0 NOTIFY news") < 10);
}

#[test]
fn idle_server_sets_no_timer() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    Node::pass_us(3_000_000);
    stage.settle();
    assert_eq!(stage.node.next_wake(), None);
}
