//! Grants are suspended after a stall: what a holder then gets, and how the suspension ends.

use redis_lock::server::{Node, Reply};

use super::stage::{Stage, on_every_kind, received};

fn watches(stage: &Stage) {
    stage.run(stage.alice, "CONFIG SET min-replicas-max-lag 0");
    stage.run(stage.alice, "CONFIG SET lock.recovery-ms 1");
    stage.pass(2000);
    assert_eq!(stage.count("recovery_ms"), 0);
}

fn try_again() -> Reply {
    Reply::Error("TRYAGAIN This server may no longer be the master, see lock.recovery-ms".to_owned())
}

/// After a stall, sends a request some milliseconds after 6 ms are left of the suspension. Each look at the clock takes 1 ms.
fn ask_at_end_of_suspension(stage: &Stage, late_ms: i64, line: &str) -> Reply {
    Node::pass_us(10_000_000);
    stage.turn();
    assert!(stage.count("recovery_ms") > 100);
    while stage.count("recovery_ms") > 6 {
        Node::pass_us(1000);
        stage.turn();
    }
    Node::pass_us(late_ms * 1000);
    Node::set_clock_read_us(1000);
    let reply = stage.ask(stage.alice, line);
    Node::set_clock_read_us(0);
    stage.pass(200);
    reply
}

/// A stall suspends a hand-over, and `lock.recovery-ms` is set to 0 in the same iteration.
#[test]
fn suspension_that_no_timer_saw_ends() {
    on_every_kind(|stage, alice, bob| {
        watches(stage);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        Node::pass_us(2_000_000);
        stage.send(alice, "LOCK.RELEASE door alice");
        stage.send(alice, "CONFIG SET lock.recovery-ms 0");
        let replies = stage.turn();
        assert!(replies.contains(&(alice, Reply::Integer(0))), "{replies:?}");
        assert_eq!(stage.wait(20_000), received(bob, 1));
    });
}

/// A suspension ends within one command.
#[test]
fn limit_holds_at_end_of_suspension() {
    for late in 0..12 {
        let stage = Stage::start();
        watches(&stage);
        stage.run(stage.asker, "LOCK.SHARE door s1 LIMIT 2 PX 5000 SESSION");
        stage.run(stage.asker, "LOCK.SHARE door x LIMIT 2 PX 600000");
        let reply = ask_at_end_of_suspension(&stage, late, "LOCK.SHARE door bob LIMIT 2 PX 60000");
        let shares = stage.shares("door");
        assert!(shares.len() <= 2, "{late}: {reply:?} {shares:?}");
    }
}

/// The same, for the session of the holder.
#[test]
fn session_goes_on_at_end_of_suspension() {
    for late in 0..12 {
        let stage = Stage::start();
        watches(&stage);
        stage.run(stage.asker, "LOCK.ACQUIRE door alice PX 5000 SESSION");
        let reply = ask_at_end_of_suspension(&stage, late, "LOCK.ACQUIRE door bob PX 60000");
        assert_eq!((reply, stage.count("sessions")), (Reply::Nil, 1), "{late}");
    }
}

/// The session of the holder gets the lock back when grants are not suspended any more.
#[test]
fn holder_does_not_wait_for_itself() {
    on_every_kind(|stage, alice, bob| {
        watches(stage);
        let line = "LOCK.ACQUIRE door alice PX 1000 SESSION BLOCK 0";
        assert_eq!(stage.run(alice, line), received(alice, 1));
        Node::pass_us(2_000_000);
        assert_eq!(stage.run(alice, line), [(alice, try_again())]);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 1000"), [(bob, Reply::Nil)]);
        assert_eq!(stage.wait(10_000), []);
        assert_eq!(stage.run(alice, line), received(alice, 1));
    });
}

/// The same on its next connection, in the grace period.
#[test]
fn reconnected_holder_keeps_its_lock() {
    on_every_kind(|stage, alice, bob| {
        watches(stage);
        let line = "LOCK.ACQUIRE door alice PX 20000 SESSION GRACE 10000 BLOCK 0";
        assert_eq!(stage.run(alice, line), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        Node::pass_us(25_000_000);
        stage.node.hang_up(alice);
        let again = stage.node.connect();
        assert_eq!(stage.run(again, line), [(again, try_again())]);
        assert_eq!(stage.wait(5000), []);
        assert_eq!(stage.run(again, line), received(again, 1));
        assert_eq!(stage.wait(20_000), []);
    });
}

/// The holder releases the lock while grants are suspended. Its session does not get the lock back.
#[test]
fn release_in_suspension_ends_session() {
    on_every_kind(|stage, alice, bob| {
        watches(stage);
        assert_eq!(stage.run(alice, "LOCK.ACQUIRE door alice PX 1000 SESSION"), received(alice, 1));
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 60000 BLOCK 0"), []);
        Node::pass_us(2_000_000);
        let [(_, reply)] = &stage.run(alice, "LOCK.RELEASE door alice")[..] else { panic!("one reply") };
        assert!(matches!(reply, Reply::Error(text) if text.starts_with("NOTHELD")), "{reply:?}");
        assert_eq!(stage.count("sessions"), 0);
        assert_eq!(stage.wait(10_000), received(bob, 1));
    });
}

/// The holder leaves an inner section. The outer one goes on.
#[test]
fn inner_release_in_suspension_keeps_session() {
    on_every_kind(|stage, alice, bob| {
        watches(stage);
        stage.run(alice, "LOCK.REENTER door alice PX 1000 HOLD 1 SESSION");
        stage.run(alice, "LOCK.REENTER door alice PX 1000 HOLD 2 SESSION");
        Node::pass_us(2_000_000);
        stage.run(alice, "LOCK.RELEASE door alice HOLD 2");
        assert_eq!(stage.wait(10_000), []);
        assert_eq!(stage.run(bob, "LOCK.ACQUIRE door bob PX 1000"), [(bob, Reply::Nil)]);
    });
}
