//! The module keeps an idle server idle: without work it sets no timer.

use redis_lock::host::Locks;
use redis_lock::server::{LoggedEvent, Node, ServerKind};

use super::stage::Stage;

/// The role changes while a queue entry is detached, and then its client releases it or comes back.
#[test]
fn end_of_detached_entry_leaves_server_idle() {
    for line in ["LOCK.RELEASE door bob", "LOCK.ACQUIRE door bob PX 600000 BLOCK 0 NOTIFY news"] {
        let stage = Stage::start();
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        stage.run(stage.asker, "LOCK.ACQUIRE door bob PX 600000 BLOCK 100 NOTIFY news");
        stage.pass(200);
        assert_eq!(stage.waiters(), 0, "its entry is kept");
        stage.node.become_replica();
        stage.node.become_master();
        stage.send(stage.asker, line);
        let is_busy = |_: &usize| {
            stage.turn();
            stage.node.next_wake().is_some_and(|wake| wake <= stage.node.now_ms())
        };
        assert!((0..50).filter(is_busy).count() < 10, "{line}");
    }
}

#[test]
fn idle_server_sets_no_timer() {
    let stage = Stage::start();
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    Node::pass_us(3_000_000);
    stage.settle();
    assert_eq!(stage.node.next_wake(), None);
}

#[test]
fn recovery_period_keeps_timer_of_idle_server() {
    let stage = Stage::start();
    stage.run(stage.alice, "CONFIG SET lock.recovery-ms 5000");
    for _ in 0..100 {
        stage.pass(100);
        stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
        let wake = stage.node.next_wake().expect("stalls are detected while there is nothing to do");
        assert!(wake <= stage.node.now_ms() + 100, "the timer fires in {} ms", wake - stage.node.now_ms());
    }
}

#[test]
fn messages_that_a_transaction_postpones_are_all_published() {
    const COUNT: usize = 2500;
    let mut stage = Stage::start();
    stage.node = Node::new::<Locks>(ServerKind::Redis70);
    [stage.alice, stage.asker, stage.listener] = [(); 3].map(|()| stage.node.connect());
    stage.run(stage.listener, "SSUBSCRIBE news");
    stage.run(stage.alice, "LOCK.ACQUIRE door alice PX 600000");
    stage.each(stage.asker, COUNT, |number| format!("LOCK.ACQUIRE door t{number} PX 600000 BLOCK 0 NOTIFY news"));
    assert_eq!(stage.waiters(), COUNT as u64);
    stage.send(stage.asker, "MULTI");
    (0..COUNT).for_each(|number| stage.send(stage.asker, &format!("LOCK.RELEASE door t{number}")));
    stage.send(stage.asker, "EXEC");
    let mut published = 0;
    for _ in 0..100 {
        stage.node.turn();
        let is_message = |event: &LoggedEvent| matches!(event, LoggedEvent::Published { .. });
        published += stage.node.event_log().iter().filter(|event| is_message(event)).count();
    }
    assert_eq!((stage.waiters(), published), (0, COUNT));
}
